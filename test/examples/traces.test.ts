import * as semconv from 'llama-stage-otel/semconv';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Report } from '../../examples/pipeline/report.js';
import type { PlainAttributes } from '../../otlp/decode.js';
import { SpanKind } from '../../otlp/schema_pb.js';
import { Collector, type ReceivedSpan } from './collector.js';
import { PROCESSES, Program, QUICK, reportOf } from './program.js';

const GENERATION = semconv.SPAN_LLAMA_STAGE_GENERATION;
const WINDOW = semconv.SPAN_LLAMA_STAGE_VERIFY_WINDOW;
const STAGE = semconv.SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW;
const COMPUTE = semconv.SPAN_LLAMA_STAGE_STAGE_COMPUTE;
const FORWARD_WRITE = semconv.SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE;
const DOWNSTREAM_WAIT = semconv.SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT;

/** The generations of a short run, those of the control included. */
const GENERATIONS = 6;

function childrenOf(spans: readonly ReceivedSpan[], parent: ReceivedSpan): ReceivedSpan[] {
  return spans.filter(
    ({ parentSpanId, traceId }) => parentSpanId === parent.spanId && traceId === parent.traceId,
  );
}

/** The spans that stand alone: nothing but a generation may. */
function namesWithoutParent(spans: readonly ReceivedSpan[]): Set<string> {
  const keys = new Set(spans.map(({ traceId, spanId }) => `${traceId} ${spanId}`));
  const alone = spans.filter((span) => !keys.has(`${span.traceId} ${span.parentSpanId}`));
  return new Set(alone.map(({ name }) => name));
}

function stageOf({ attributes }: { readonly attributes: PlainAttributes }): number {
  return attributes[semconv.ATTR_LLAMA_STAGE_STAGE_INDEX] as number;
}

describe('the traces of a pipeline with depth', PROCESSES, () => {
  let report: Report;
  let spans: readonly ReceivedSpan[];
  let metricResources: readonly PlainAttributes[];
  const named = (name: string) => spans.filter((span) => span.name === name);

  beforeAll(async () => {
    const collector = await Collector.start();
    report = await reportOf(['--depth', '4'], collector.env);
    ({ spans, metricResources } = collector);
  }, PROCESSES.timeout);

  test('are one for each generation', () => {
    expect(named(GENERATION)).toHaveLength(GENERATIONS);
    expect(new Set(named(GENERATION).map(({ traceId }) => traceId)).size).toBe(GENERATIONS);
    expect(new Set(spans.map(({ traceId }) => traceId)).size).toBe(GENERATIONS);
    expect(namesWithoutParent(spans)).toEqual(new Set([GENERATION]));
    for (const { parentSpanId, attributes } of named(GENERATION)) {
      expect(parentSpanId).toBe('');
      expect([1, 4]).toContain(attributes[semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DEPTH]);
      expect(attributes[semconv.ATTR_GEN_AI_REQUEST_MODEL]).toBe('back-off-n-gram');
    }
  });

  test('have a span of every window below its generation', () => {
    expect(named(WINDOW)).toHaveLength(report.control.q3.opened + report.pipelined.q3.opened);
    const generations = named(GENERATION);
    const below = generations.flatMap((generation) => childrenOf(spans, generation));
    expect(below).toHaveLength(named(WINDOW).length);
    for (const window of below) {
      expect(window).toMatchObject({ name: WINDOW, kind: SpanKind.CLIENT, isError: false });
      expect(window.attributes).toHaveProperty([semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT]);
    }
    for (const generation of generations) {
      const ids = childrenOf(spans, generation).map(
        ({ attributes }) => attributes[semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID],
      );
      expect(new Set(ids).size).toBe(
        generation.attributes[semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OPENED],
      );
    }
  });

  test('follow each window through every stage once', () => {
    for (const window of named(WINDOW)) {
      const stages = childrenOf(spans, window);
      expect(stages.map(stageOf).toSorted()).toEqual([0, 1, 2, 3]);
      for (const stage of stages) {
        expect(stage).toMatchObject({ name: STAGE, kind: SpanKind.SERVER, isError: false });
        // What a span says of its stage is what the process says of itself.
        expect(stage.resource).toMatchObject({
          [semconv.ATTR_LLAMA_STAGE_STAGE_ID]: `stage-${stageOf(stage)}`,
        });
        expect(stage.attributes).toEqual({
          [semconv.ATTR_LLAMA_STAGE_STAGE_INDEX]: stageOf(stage),
          ...stageAttributesOf(stage.resource),
        });
      }
    }
  });

  test('have the phases that a stage goes through', () => {
    const phases = [
      [COMPUTE, FORWARD_WRITE, DOWNSTREAM_WAIT],
      [COMPUTE, FORWARD_WRITE],
      [COMPUTE, FORWARD_WRITE],
      [COMPUTE],
    ];
    for (const stage of named(STAGE)) {
      const children = childrenOf(spans, stage);
      expect(children.map(({ name }) => name)).toEqual(phases[stageOf(stage)]);
      for (const { kind } of children) expect(kind).toBe(SpanKind.INTERNAL);
    }
  });

  test('come from four processes that can be told apart', () => {
    const resources = processesOf(spans.map(({ resource }) => resource));
    expect(processesOf(metricResources)).toEqual(resources);
    expect(resources.map((resource) => resource['service.name'])).toEqual([
      'llama-stage-coordinator',
      'llama-stage-1',
      'llama-stage-2',
      'llama-stage-3',
    ]);
    expect(resources.map(stageAttributesOf)).toEqual(
      [0, 1, 2, 3].map((stage) => ({
        [semconv.ATTR_LLAMA_STAGE_STAGE_ID]: `stage-${stage}`,
        [semconv.ATTR_LLAMA_STAGE_STAGE_LAYER_START]: 8 * stage,
        [semconv.ATTR_LLAMA_STAGE_STAGE_LAYER_END]: 8 * stage + 8,
      })),
    );
  });
});

/** One of the resources for each process, in the order of the stages. */
function processesOf(resources: readonly PlainAttributes[]): PlainAttributes[] {
  const byInstance = new Map(
    resources.map((resource) => [resource['service.instance.id'], resource]),
  );
  return [...byInstance.values()].toSorted((a, b) => layerStartOf(a) - layerStartOf(b));
}

function layerStartOf(resource: PlainAttributes): number {
  return resource[semconv.ATTR_LLAMA_STAGE_STAGE_LAYER_START] as number;
}

function stageAttributesOf(resource: PlainAttributes): PlainAttributes {
  const keys = [
    semconv.ATTR_LLAMA_STAGE_STAGE_ID,
    semconv.ATTR_LLAMA_STAGE_STAGE_LAYER_START,
    semconv.ATTR_LLAMA_STAGE_STAGE_LAYER_END,
  ];
  return Object.fromEntries(keys.map((key) => [key, resource[key]]));
}

describe('the environment of a run', PROCESSES, () => {
  test.each([
    ['always_off', '', 0],
    ['traceidratio', '0', 0],
    ['parentbased_traceidratio', '1', GENERATIONS],
  ])('sampler %s %s leaves whole traces or none', async (sampler, argument, traces) => {
    const collector = await Collector.start();
    await reportOf(['--depth', '2'], {
      ...collector.env,
      OTEL_TRACES_SAMPLER: sampler,
      OTEL_TRACES_SAMPLER_ARG: argument,
    });
    expect(new Set(collector.spans.map(({ traceId }) => traceId)).size).toBe(traces);
    expect(namesWithoutParent(collector.spans)).toEqual(new Set(traces > 0 ? [GENERATION] : []));
    expect(collector.paths).toContain('/v1/metrics');
  });

  test('may name the service, but not take the processes for one', async () => {
    const collector = await Collector.start();
    await reportOf(['--stages', '2'], {
      ...collector.env,
      OTEL_SERVICE_NAME: 'mine',
      OTEL_RESOURCE_ATTRIBUTES: 'service.instance.id=same,deployment.environment.name=test',
    });
    const resources = collector.spans.map(({ resource }) => resource);
    expect(new Set(resources.map((resource) => resource['service.instance.id'])).size).toBe(2);
    for (const resource of resources) {
      expect(resource).toMatchObject({
        'service.name': 'mine',
        'deployment.environment.name': 'test',
      });
    }
  });

  test('may ask for the metrics alone', async () => {
    const collector = await Collector.start();
    const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = collector.env;
    await reportOf(['--depth', '2'], {
      OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${endpoint}/v1/metrics`,
    });
    expect([...collector.paths]).toEqual(['/v1/metrics']);
  });
});

test('an interrupt leaves no span without its parent', PROCESSES, async () => {
  const collector = await Collector.start();
  const program = new Program([...QUICK, '--generations', '1000'], collector.env);
  await program.said(/1 of 1000/);
  program.kill('SIGINT');
  expect(await program.exitCode()).toBe(130);
  expect(new Set(collector.spans.map(({ name }) => name))).toContain(FORWARD_WRITE);
  expect(namesWithoutParent(collector.spans)).toEqual(new Set([GENERATION]));
});
