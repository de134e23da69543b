import { setImmediate } from 'node:timers/promises';
import { metrics, trace } from '@opentelemetry/api';
import { afterEach, describe, expect, test } from 'vitest';
import * as CONVENTIONS from '../semconv/index.js';
import { PreaggregatedHistograms } from '../src/histograms/index.js';
import {
  type GenerationOptions,
  injectTraceContext,
  PipelineTelemetry,
  type PipelineTelemetryOptions,
  parseResponseTimings,
  responseTimings,
  VerifyWindowScheduler,
  windowContext,
} from '../src/index.js';
import { type Collected, ManualReader, providerWith } from './metrics/collected.js';
import { isParent, listenToDiag, Tracing, useApi } from './tracing/sdk.js';

const GENERATION = CONVENTIONS.SPAN_LLAMA_STAGE_GENERATION;
const WINDOW = CONVENTIONS.SPAN_LLAMA_STAGE_VERIFY_WINDOW;
const STAGE = CONVENTIONS.SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW;
const OPENED = CONVENTIONS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const WINDOW_DURATION = CONVENTIONS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION;
const COUNT = CONVENTIONS.METRIC_LLAMA_STAGE_GENERATION_COUNT;
/** Each is a series from the first generation on, so that a rise from none shows. */
const OUTCOMES = CONVENTIONS.LLAMA_STAGE_GENERATION_OUTCOME_VALUES.length;
const REQUEST_DURATION = CONVENTIONS.METRIC_GEN_AI_SERVER_REQUEST_DURATION;
const COMPUTE = CONVENTIONS.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION;
const OUTCOME = CONVENTIONS.ATTR_LLAMA_STAGE_GENERATION_OUTCOME;
const OVERFLOW = CONVENTIONS.ATTR_OTEL_METRIC_OVERFLOW;
const PROVIDER = CONVENTIONS.ATTR_GEN_AI_PROVIDER_NAME;

useApi();

const schedulers: VerifyWindowScheduler[] = [];

afterEach(() => {
  for (const scheduler of schedulers.splice(0)) scheduler.close();
});

function newScheduler(depth = 2): VerifyWindowScheduler {
  const scheduler = new VerifyWindowScheduler({ depth });
  schedulers.push(scheduler);
  return scheduler;
}

/** The one telemetry of a process, with an SDK that is not registered. */
function setUp(options: PipelineTelemetryOptions = {}) {
  const tracing = new Tracing();
  const reader = new ManualReader();
  const telemetry = new PipelineTelemetry({
    tracerProvider: tracing.provider,
    meterProvider: providerWith(reader),
    ...options,
  });
  return { tracing, reader, telemetry };
}

/** A generation of two windows, each of which passes through the stages. */
async function generate(
  telemetry: PipelineTelemetry,
  { stages = 4, ...options }: Partial<GenerationOptions> & { stages?: number } = {},
) {
  const chain = Array.from({ length: stages }, (_, index) => telemetry.stage({ index }));
  const pass = async (carrier: unknown, index = 0): Promise<void> => {
    await chain[index]?.window(carrier, async (window) => {
      await window.compute(() => setImmediate());
      if (index + 1 < stages) await window.forwardWrite(() => pass(window.carrier, index + 1));
    });
  };
  return telemetry
    .generation({ depth: 2, ...options })
    .run(async ({ scheduler, tokensCommitted }) => {
      const sent = [0, 8].map((position) => scheduler.open(position, 0));
      await Promise.all(
        sent.map((window) => pass(injectTraceContext(windowContext(scheduler, window)))),
      );
      for (const { id } of sent) {
        scheduler.completeNext(id, { proposedTokens: 8, acceptedTokens: 5 });
        tokensCommitted(6);
      }
      return scheduler;
    });
}

/** The attributes of each point of a metric. */
function attributesOf(collected: Collected, name: string) {
  return collected.points(name).map(({ attributes }) => attributes);
}

describe('a whole pipeline', () => {
  test('is one trace: a generation, its windows, the stages of each', async () => {
    const { tracing, telemetry } = setUp();
    await generate(telemetry);
    const generation = tracing.span(GENERATION);
    const { traceId } = generation.spanContext();
    expect(tracing.spans().every((span) => span.spanContext().traceId === traceId)).toBe(true);
    const windows = tracing.spans(WINDOW);
    expect(windows).toHaveLength(2);
    for (const window of windows) {
      expect(isParent(generation, window)).toBe(true);
      const stages = tracing.spans(STAGE).filter((stage) => isParent(window, stage));
      expect(
        stages
          .map(({ attributes }) => attributes[CONVENTIONS.ATTR_LLAMA_STAGE_STAGE_INDEX])
          .toSorted(),
      ).toEqual([0, 1, 2, 3]);
    }
    expect(tracing.spans(CONVENTIONS.SPAN_LLAMA_STAGE_STAGE_COMPUTE)).toHaveLength(8);
    expect(tracing.spans(CONVENTIONS.SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE)).toHaveLength(6);
  });

  test('is counted by its scheduler, its generation and its stages', async () => {
    const { reader, telemetry } = setUp();
    const scheduler = await generate(telemetry);
    expect(scheduler.isClosed).toBe(true);
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.sum(CONVENTIONS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS)).toBe(10);
    expect(collected.count(WINDOW_DURATION)).toBe(2);
    expect(collected.sum(COUNT, { [OUTCOME]: 'completed' })).toBe(1);
    expect(collected.count(REQUEST_DURATION)).toBe(1);
    expect(collected.count(CONVENTIONS.METRIC_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN)).toBe(1);
    expect(collected.count(COMPUTE)).toBe(8);
    expect(collected.histogram(COMPUTE)).toHaveLength(4);
  });

  test('gives what its decode loop gives, and its error', async () => {
    const { telemetry } = setUp();
    const plan = telemetry.generation({ depth: 1 });
    const promise = Promise.resolve(7);
    expect(plan.run(() => promise)).toBe(promise);
    expect(await plan.run(() => 7)).toBe(7);
    const error = new RangeError();
    await expect(plan.run(() => Promise.reject(error))).rejects.toBe(error);
    const stream = plan.run(async function* () {
      yield 1;
    });
    expect(await stream.next()).toEqual({ value: 1, done: false });
    await stream.return();
  });

  test('may be started, and a plan may be used again', async () => {
    const { tracing, reader, telemetry } = setUp();
    const plan = telemetry.generation({ depth: 1 });
    const [one, other] = [plan.start(), plan.start()];
    expect(one.scheduler).not.toBe(other.scheduler);
    one.end();
    other.cancel();
    const collected = await reader.read();
    const outcomes = ['completed', 'cancelled'];
    expect(outcomes.map((outcome) => collected.sum(COUNT, { [OUTCOME]: outcome }))).toEqual([1, 1]);
    expect(tracing.spans(GENERATION)).toHaveLength(2);
  });

  test.each([{ depth: 0.5 }, {}, undefined, null])(
    'throws for a generation that cannot be, when it begins: %j',
    async (options) => {
      const { telemetry } = setUp();
      const plan = telemetry.generation(options as GenerationOptions);
      const refusal = expect.objectContaining({ code: 'invalid_argument' });
      expect(() => plan.start()).toThrow(refusal);
      await expect(plan.run(() => 7)).rejects.toThrow(refusal);
    },
  );

  test('throws for a stage that cannot be', () => {
    const refusal = expect.objectContaining({ code: 'invalid_argument' });
    expect(() => setUp().telemetry.stage({ index: -1 })).toThrow(refusal);
    const { telemetry } = setUp({ phases: 'none' as 'spans' });
    expect(() => telemetry.stage({ index: 0 })).toThrow(refusal);
  });
});

describe('a scheduler of the host’s', () => {
  test('is counted, and traced below the span that is active', async () => {
    const { tracing, reader, telemetry } = setUp();
    const scheduler = newScheduler();
    tracing.tracer.startActiveSpan('request', (request) => {
      telemetry.observe(scheduler, { pool: 'a' });
      scheduler.completeNext(scheduler.open(0, 0).id);
      scheduler.close();
      request.end();
    });
    expect(isParent(tracing.span('request'), tracing.span(WINDOW))).toBe(true);
    const collected = await reader.read();
    expect(collected.sum(OPENED, { pool: 'a' })).toBe(1);
    expect(collected.names).not.toContain(COUNT);
  });

  test('is counted also where no span is active', async () => {
    const { tracing, reader, telemetry } = setUp();
    const scheduler = newScheduler();
    telemetry.observe(scheduler);
    scheduler.completeNext(scheduler.open(0, 0).id);
    expect(tracing.spans()).toEqual([]);
    expect((await reader.read()).sum(OPENED)).toBe(1);
  });

  test('counts once, however often it is observed, also that of a generation', async () => {
    const { tracing, reader, telemetry } = setUp();
    await telemetry.generation({ depth: 1 }).run(({ scheduler }) => {
      telemetry.observe(scheduler);
      telemetry.observe(scheduler);
      scheduler.completeNext(scheduler.open(0, 0).id);
    });
    expect(tracing.spans(WINDOW)).toHaveLength(1);
    const collected = await reader.read();
    expect([collected.sum(OPENED), collected.count(WINDOW_DURATION)]).toEqual([1, 1]);
  });
});

describe('a generation of which only the statistics are known', () => {
  test('is counted as if it had been seen, as far as they tell', async () => {
    const { tracing, reader, telemetry } = setUp({ metricAttributes: { role: 'proxy' } });
    const scheduler = newScheduler(4);
    for (let i = 0; i < 3; i++) scheduler.open(i, i);
    scheduler.close();
    const timings = JSON.parse(JSON.stringify(responseTimings(scheduler.stats())));
    telemetry.recordGeneration(parseResponseTimings(timings), { pool: 'a' });
    const collected = await reader.read();
    expect(attributesOf(collected, OPENED)).toEqual([{ role: 'proxy', pool: 'a' }]);
    expect(collected.sum(OPENED)).toBe(3);
    expect(collected.count(CONVENTIONS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT)).toBe(1);
    expect(tracing.spans()).toEqual([]);
  });

  test('is refused where they contradict themselves, and not counted', async () => {
    const { reader, telemetry } = setUp();
    const stats = { ...newScheduler(2).stats(), maxInFlight: 7 };
    expect(() => telemetry.recordGeneration(stats)).toThrow(
      expect.objectContaining({ code: 'invalid_argument' }),
    );
    expect((await reader.read()).sum(OPENED)).toBe(0);
  });
});

describe('the option', () => {
  test('metricAttributes goes onto every metric, and what is nearer goes before it', async () => {
    const { reader, telemetry } = setUp({ metricAttributes: { pool: 'a', region: 'eu' } });
    await generate(telemetry, { metricAttributes: { region: 'us' } });
    const observed = newScheduler();
    telemetry.observe(observed, { region: 'us' });
    observed.completeNext(observed.open(0, 0).id);
    const collected = await reader.read();
    for (const name of collected.names) {
      const region = name.startsWith('llama_stage.stage.') ? 'eu' : 'us';
      for (const attributes of attributesOf(collected, name)) {
        expect(attributes, name).toMatchObject({ pool: 'a', region });
      }
    }
    expect(collected.names).toEqual(
      expect.arrayContaining([OPENED, WINDOW_DURATION, COUNT, REQUEST_DURATION, COMPUTE]),
    );
  });

  test('metricAttributes is of metrics, and not of spans', async () => {
    const { tracing, telemetry } = setUp({ metricAttributes: { pool: 'a' } });
    await generate(telemetry);
    for (const { attributes } of tracing.spans()) expect(attributes).not.toHaveProperty('pool');
  });

  test('metricAttributes cannot take the place of what the conventions ask for', async () => {
    const index = CONVENTIONS.ATTR_LLAMA_STAGE_STAGE_INDEX;
    const { reader, telemetry } = setUp({ metricAttributes: { [PROVIDER]: 'x', [index]: 99 } });
    await generate(telemetry, { stages: 1 });
    const collected = await reader.read();
    expect(attributesOf(collected, COUNT)[0]).toMatchObject({ [PROVIDER]: 'llama_stage' });
    expect(attributesOf(collected, COMPUTE)[0]).toMatchObject({ [index]: 0 });
  });

  test('maxAttributeSets bounds what schedulers are kept apart by', async () => {
    const { reader, telemetry } = setUp({ maxAttributeSets: 1 });
    for (const run of ['a', 'b', 'c']) {
      await generate(telemetry, { stages: 0, metricAttributes: { run } });
    }
    const collected = await reader.read();
    expect(attributesOf(collected, OPENED)).toEqual([{ run: 'a' }, { [OVERFLOW]: true }]);
    expect(collected.sum(OPENED)).toBe(6);
  });

  test('maxAttributeSets bounds what generations are kept apart by', async () => {
    const { reader, telemetry } = setUp({ maxAttributeSets: 1 });
    for (const run of ['a', 'b', 'c']) {
      await generate(telemetry, { stages: 0, metricAttributes: { run } });
    }
    const collected = await reader.read();
    expect(attributesOf(collected, COUNT)).toHaveLength(2 * OUTCOMES);
    expect(collected.sum(COUNT)).toBe(3);
  });

  test.each([
    ['maxAttributeSets', 0],
    ['maxAttributeSets', 1.5],
    ['maxWindowSpans', -1],
    ['maxWindowSpans', Number.NaN],
  ])('%s cannot be %s', (option, value) => {
    expect(() => new PipelineTelemetry({ [option]: value })).toThrow(
      expect.objectContaining({
        code: 'invalid_argument',
        message: expect.stringContaining(option),
      }),
    );
  });

  test('histograms records those of schedulers, generations and stages', async () => {
    const histograms = new PreaggregatedHistograms();
    const reader = new ManualReader({ metricProducers: [histograms.producer()] });
    const own = new ManualReader();
    const { telemetry } = setUp({ meterProvider: providerWith(reader, own), histograms });
    await generate(telemetry);
    const collected = await reader.read();
    const onMeter = await own.read();
    for (const [name, count] of [
      [WINDOW_DURATION, 2],
      [REQUEST_DURATION, 1],
      [CONVENTIONS.METRIC_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN, 1],
      [COMPUTE, 8],
      [CONVENTIONS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT, 1],
    ] as const) {
      expect(collected.count(name), name).toBe(count);
      expect(onMeter.names).not.toContain(name);
    }
    expect(collected.sum(COUNT)).toBe(1);
    expect(onMeter.sum(COUNT)).toBe(1);
  });

  test('maxWindowSpans bounds generations, and schedulers of the host’s', async () => {
    const { tracing, telemetry } = setUp({ maxWindowSpans: 1 });
    await generate(telemetry);
    expect(tracing.spans(WINDOW)).toHaveLength(1);
    expect(tracing.spans(STAGE)).toHaveLength(4);
    const omitted = CONVENTIONS.ATTR_LLAMA_STAGE_VERIFY_WINDOW_WINDOWS_OMITTED;
    expect(tracing.span(GENERATION).attributes).toMatchObject({ [omitted]: 1 });
    tracing.tracer.startActiveSpan('request', () => {
      const scheduler = newScheduler();
      telemetry.observe(scheduler);
      scheduler.open(0, 0);
      scheduler.open(8, 0);
      scheduler.close();
    });
    expect(tracing.spans(WINDOW)).toHaveLength(2);
  });

  test('onWindowSpan hears of the windows of both', async () => {
    const { tracing, telemetry } = setUp({
      onWindowSpan: (span, { basePosition }) => span.setAttribute('host.position', basePosition),
    });
    await generate(telemetry);
    tracing.tracer.startActiveSpan('request', () => {
      const scheduler = newScheduler();
      telemetry.observe(scheduler);
      scheduler.completeNext(scheduler.open(16, 0).id);
    });
    const positions = tracing.spans(WINDOW).map(({ attributes }) => attributes['host.position']);
    expect(positions).toEqual([0, 8, 16]);
  });

  test.each([
    ['attributes', 5],
    ['spans', 12],
  ] as const)('phases is that of its stages: %s', async (phases, each) => {
    const { tracing, telemetry } = setUp({ phases });
    await generate(telemetry);
    expect(tracing.spans()).toHaveLength(1 + 2 * each);
  });

  test('providerName is that of its generations', async () => {
    const { tracing, reader, telemetry } = setUp({ providerName: 'acme' });
    await generate(telemetry);
    expect(tracing.span(GENERATION).attributes).toMatchObject({ [PROVIDER]: 'acme' });
    expect((await reader.read()).sum(COUNT, { [PROVIDER]: 'acme' })).toBe(1);
  });

  test('tracerProvider and meterProvider go before those that are registered', async () => {
    const { tracing, reader, telemetry } = setUp();
    const [otherTracing, otherReader] = [new Tracing(), new ManualReader()];
    trace.setGlobalTracerProvider(otherTracing.provider);
    metrics.setGlobalMeterProvider(providerWith(otherReader));
    await generate(telemetry);
    expect(tracing.spans(GENERATION)).toHaveLength(1);
    expect((await reader.read()).sum(COUNT)).toBe(1);
    expect(otherTracing.spans()).toEqual([]);
    expect((await otherReader.read()).names).toEqual([]);
  });
});

describe('providers that are registered', () => {
  test('are found, also where they come late', async () => {
    const telemetry = new PipelineTelemetry();
    await generate(telemetry);
    const tracing = new Tracing();
    const reader = new ManualReader();
    trace.setGlobalTracerProvider(tracing.provider);
    metrics.setGlobalMeterProvider(providerWith(reader));
    await generate(telemetry);
    expect(tracing.spans()).toHaveLength(1 + 2 * 12);
    const collected = await reader.read();
    // Schedulers were counted from the start.
    expect(collected.sum(OPENED)).toBe(4);
    expect([collected.sum(COUNT), collected.count(COMPUTE)]).toEqual([1, 8]);
  });

  test('may be missing: everything works, and nothing is said', async () => {
    const complain = listenToDiag();
    const telemetry = new PipelineTelemetry();
    const scheduler = await generate(telemetry);
    telemetry.observe(newScheduler());
    telemetry.recordGeneration(scheduler.stats());
    expect(scheduler.stats().opened).toBe(2);
    expect(complain).not.toHaveBeenCalled();
  });
});

test('several in one process share a meter provider, and give one point for each series', async () => {
  const reader = new ManualReader();
  const meterProvider = providerWith(reader);
  const all = [1, 2, 3].map(() => setUp({ meterProvider }).telemetry);
  for (const telemetry of all) await generate(telemetry, { stages: 1 });
  const collected = await reader.read();
  for (const [name, total] of [
    [OPENED, 6],
    [COUNT, 3],
  ] as const) {
    expect(collected.points(name)).toHaveLength(name === COUNT ? OUTCOMES : 1);
    expect(collected.sum(name)).toBe(total);
  }
  for (const [name, total] of [
    [WINDOW_DURATION, 6],
    [REQUEST_DURATION, 3],
    [COMPUTE, 6],
  ] as const) {
    expect(collected.histogram(name)).toHaveLength(1);
    expect(collected.count(name)).toBe(total);
  }
});
