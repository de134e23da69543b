import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Report } from '../../examples/pipeline/report.js';
import * as semconv from '../../semconv/index.js';
import { runExample } from './example.js';
import { Jaeger, type JaegerSpan } from './jaeger.js';
import { findMissing, until } from './programs.js';
import { writeTree } from './trace-tree.js';

const GENERATION = semconv.SPAN_LLAMA_STAGE_GENERATION;
const WINDOW = semconv.SPAN_LLAMA_STAGE_VERIFY_WINDOW;
const STAGE = semconv.SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW;
const COMPUTE = semconv.SPAN_LLAMA_STAGE_STAGE_COMPUTE;
const DEPTH = semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DEPTH;
const STAGES = 4;
const GENERATIONS = 8;

/** The kinds and the status as OTLP numbers them. */
const KIND = { [GENERATION]: 1, [WINDOW]: 3, [STAGE]: 2 } as Readonly<Record<string, number>>;
const STATUS_ERROR = 2;

describe.skipIf(findMissing(['jaeger']))('in the real Jaeger', () => {
  let jaeger: Jaeger;
  let report: Report;
  let traces: JaegerSpan[][];
  const named = (trace: readonly JaegerSpan[], name: string) =>
    trace.filter((span) => span.name === name);

  beforeAll(async () => {
    jaeger = await Jaeger.start();
    report = await runExample(['--depth', '4', '--generations', `${GENERATIONS}`], {
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: jaeger.tracesEndpoint,
    });
    const windows = report.control.q3.opened + report.pipelined.q3.opened;
    traces = await until('every window in each stage', async () => {
      const found = await jaeger.traces('llama-stage-coordinator');
      const stageSpans = found.flatMap((trace) => named(trace, STAGE)).length;
      return stageSpans === windows * STAGES ? found : undefined;
    });
    const pipelined = traces.find((trace) =>
      trace.some(({ attributes }) => attributes[DEPTH] === 4),
    );
    writeTree('build/e2e-trace.txt', pipelined ?? []);
  });
  afterAll(() => jaeger?.stop());

  test('each generation is one trace, with spans of every process', () => {
    expect(traces).toHaveLength(2 * GENERATIONS);
    for (const trace of traces) {
      expect(named(trace, GENERATION)).toHaveLength(1);
      const services = new Set(trace.map(({ resource }) => resource['service.name']));
      expect([...services].sort()).toEqual([
        'llama-stage-1',
        'llama-stage-2',
        'llama-stage-3',
        'llama-stage-coordinator',
      ]);
    }
  });

  test('each window has one span in each stage, below its own', () => {
    for (const trace of traces) {
      const [generation] = named(trace, GENERATION);
      for (const window of named(trace, WINDOW)) {
        expect(window.parentSpanId).toBe(generation?.spanId);
        const stages = trace.filter(({ parentSpanId }) => parentSpanId === window.spanId);
        expect(stages.map(({ name }) => name)).toEqual(Array(STAGES).fill(STAGE));
        const indexes = stages.map(
          ({ attributes }) => attributes[semconv.ATTR_LLAMA_STAGE_STAGE_INDEX],
        );
        expect(indexes.sort()).toEqual([0, 1, 2, 3]);
        for (const stage of stages) {
          const phases = trace.filter(({ parentSpanId }) => parentSpanId === stage.spanId);
          expect(phases.map(({ name }) => name)).toContain(COMPUTE);
        }
      }
    }
  });

  test('kinds and statuses are those of the conventions, and nothing is an error', () => {
    for (const span of traces.flat()) {
      expect(span.kind).toBe(KIND[span.name] ?? 1);
      expect(span.status?.code).not.toBe(STATUS_ERROR);
    }
  });

  test('windows carry what they were and what became of them', () => {
    const windows = traces.flatMap((trace) => named(trace, WINDOW));
    expect(windows).toHaveLength(report.control.q3.opened + report.pipelined.q3.opened);
    for (const { attributes } of windows) {
      expect(attributes).toMatchObject({
        [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID]: expect.any(Number),
        [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION]: expect.any(Number),
        [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DECODE_STEP]: expect.any(Number),
        [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT]: expect.any(Number),
        [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER]: expect.any(Number),
        [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT]: expect.any(String),
      });
    }
    const stale = windows.filter(
      ({ attributes }) => attributes[semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT] === 'stale',
    );
    expect(stale).toHaveLength(
      report.control.q6.staleDiscarded + report.pipelined.q6.staleDiscarded,
    );
  });

  test('generations carry their summary, and an event for each recovery epoch', () => {
    const generations = traces.flatMap((trace) => named(trace, GENERATION));
    const sum = (key: string) =>
      generations.reduce((total, { attributes }) => total + Number(attributes[key]), 0);
    const { control, pipelined } = report;
    expect(sum(semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OPENED)).toBe(
      control.q3.opened + pipelined.q3.opened,
    );
    const events = generations.flatMap((generation) => generation.events);
    expect(events.map(({ name }) => name)).toEqual(
      Array(control.q6.recoveryEpochs + pipelined.q6.recoveryEpochs).fill(
        semconv.EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
      ),
    );
  });

  test('compute of different windows overlaps with depth, and never at depth 1', () => {
    const overlapping = traces.map((trace) => ({
      depth: named(trace, GENERATION)[0]?.attributes[DEPTH],
      overlaps: hasOverlap(named(trace, COMPUTE)),
    }));
    expect(overlapping.filter(({ depth }) => depth === 1).map(({ overlaps }) => overlaps)).toEqual(
      Array(GENERATIONS).fill(false),
    );
    expect(overlapping.filter(({ depth }) => depth === 4).map(({ overlaps }) => overlaps)).toEqual(
      Array(GENERATIONS).fill(true),
    );
  });

  test('no span says a thing that is not in the conventions', () => {
    const known = new Set<unknown>(Object.values(semconv));
    for (const { name, attributes, events } of traces.flat()) {
      expect(known).toContain(name);
      const keys = [attributes, ...events.map((event) => event.attributes)].flatMap(Object.keys);
      expect(keys.filter((key) => !known.has(key))).toEqual([]);
    }
  });
});

/** Whether two of these spans share some time. */
function hasOverlap(spans: readonly JaegerSpan[]): boolean {
  const intervals = spans
    .map((span) => [BigInt(span.startTimeUnixNano), BigInt(span.endTimeUnixNano)] as const)
    .toSorted(([a], [b]) => Number(a - b));
  return intervals.some(([start], index) => {
    const before = intervals[index - 1];
    return before !== undefined && start < before[1];
  });
}
