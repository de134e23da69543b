import { type Attributes, metrics as metricsApi } from '@opentelemetry/api';
import type { MeterProvider } from '@opentelemetry/sdk-metrics';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import {
  ATTR_ERROR_TYPE,
  ATTR_GEN_AI_REQUEST_MODEL,
  ATTR_LLAMA_STAGE_STAGE_INDEX,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL,
  ATTR_OTEL_METRIC_OVERFLOW,
} from '../../semconv/attributes.js';
import { METRIC_ATTRIBUTES } from '../../semconv/counted.js';
import * as METRICS from '../../semconv/metrics.js';
import { PreaggregatedHistograms } from '../../src/histograms/index.js';
import {
  GenerationTelemetry,
  PipelineTelemetry,
  parseResponseTimings,
  pipelineAttributes,
  type ReportedStats,
  responseTimings,
  StageTelemetry,
  stampGenerationSpan,
  summaryAttributes,
  VerifyWindowError,
  VerifyWindowMetrics,
  VerifyWindowScheduler,
} from '../../src/index.js';
import { configFromEnvironment, VerifyWindowInstrumentation } from '../../src/instrumentation.js';
import { listenToDiag, Tracing, useApi } from '../tracing/sdk.js';
import {
  type Collected,
  counterValues,
  expectNoneFell,
  expectOnePointForEachSeries,
  ManualReader,
  providerWith,
} from './collected.js';

const OPENED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const COMPLETED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED;
const DROPPED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED;
const IN_FLIGHT = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT;
const OCCUPANCY_TIME = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME;
const WINDOW_TIME = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME;
const LEVEL = ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL;

useApi();

/** What an SDK keeps of one metric before it adds up the rest by itself. */
const MAX_POINTS = 2000;

function expectFewPoints(collected: Collected): void {
  for (const name of collected.names) {
    expect(collected.points(name).length, name).toBeLessThanOrEqual(MAX_POINTS);
  }
}

function expectFiniteCounters(collected: Collected): void {
  for (const [series, value] of counterValues(collected)) {
    expect(Number.isFinite(value) && value >= 0, `${series}: ${value}`).toBe(true);
  }
}

/** The same but for rounding: decimal fractions were added in another order. */
function isClose(actual: number, expected: number): boolean {
  return Math.abs(actual - expected) < 1e-9 * Math.max(1, expected);
}

function expectClose(actual: number, expected: number, what: string): void {
  expect(isClose(actual, expected), `${what}: ${actual}, not ${expected}`).toBe(true);
}

/** Schedulers under one clock, and what the metrics must say of all of them. */
class Workload {
  ms = 0;
  readonly #all: { scheduler: VerifyWindowScheduler; bornMs: number; endedMs?: number }[] = [];

  create(depth: number): VerifyWindowScheduler {
    const scheduler = new VerifyWindowScheduler({ depth, clock: () => this.ms });
    this.#all.push({ scheduler, bornMs: this.ms });
    return scheduler;
  }

  close(which: number): void {
    const one = this.#all[which % this.#all.length];
    if (one === undefined || one.scheduler.isClosed) return;
    one.scheduler.close();
    one.endedMs = this.ms;
  }

  /** What is left open would be found by whoever looks for open schedulers later. */
  end(): void {
    for (const { scheduler } of this.#all) scheduler.close();
  }

  expectIn(collected: Collected): void {
    const sum = (name: string) => collected.sum(name);
    const stats = this.#all.map(({ scheduler }) => scheduler.stats());
    const opened = stats.reduce((total, { opened }) => total + opened, 0);
    expect(sum(OPENED)).toBe(opened);
    expect(sum(OPENED)).toBe(sum(COMPLETED) + sum(DROPPED) + sum(IN_FLIGHT));
    const lifetimeMs = this.#all.reduce(
      (total, { bornMs, endedMs }) => total + (endedMs ?? this.ms) - bornMs,
      0,
    );
    expectClose(sum(OCCUPANCY_TIME), lifetimeMs / 1000, 'occupancy time');
    const windowMs = stats.reduce(
      (total, { occupancyMsByDepth }) =>
        total + occupancyMsByDepth.reduce((sumMs, ms, level) => sumMs + level * ms, 0),
      0,
    );
    expectClose(sum(WINDOW_TIME), windowMs / 1000, 'window time');
  }
}

const limit = fc.oneof(
  fc.integer({ min: 1, max: 2000 }),
  fc.constantFrom(1, 100, 284, 285, 10_000),
);
const depth = fc.oneof(fc.integer({ min: 1, max: 1024 }), fc.constantFrom(1, 2, 19, 20, 1024));

const workload = fc.record({
  limits: fc.array(limit, { minLength: 1, maxLength: 3 }),
  sets: fc.oneof(fc.integer({ min: 1, max: 400 }), fc.constantFrom(1, 284, 285, 286, 400)),
  depths: fc.array(depth, { minLength: 1, maxLength: 4 }),
  rounds: fc.integer({ min: 1, max: 2 }),
  toClose: fc.array(fc.nat(400), { maxLength: 50 }),
});

describe('sums hold below the limit of the SDK', () => {
  test('for any depth, any number of attribute sets, and any limits of bridges on one provider', async () => {
    await fc.assert(
      fc.asyncProperty(workload, async ({ limits, sets, depths, rounds, toClose }) => {
        const cumulative = new ManualReader();
        const delta = ManualReader.delta();
        const meterProvider = providerWith(cumulative, delta);
        const bridges = limits.map(
          (maxAttributeSets) => new VerifyWindowMetrics({ meterProvider, maxAttributeSets }),
        );
        const work = new Workload();
        const deltas = new Map<string, number>();
        let last = new Map<string, number>();
        const collect = async () => {
          const collected = await cumulative.read();
          work.expectIn(collected);
          expectFewPoints(collected);
          expectOnePointForEachSeries(collected);
          last = expectNoneFell(counterValues(collected), last);
          const since = await delta.read();
          expectFewPoints(since);
          const added = counterValues(since);
          expect([...added].filter(([, value]) => !(value >= 0))).toEqual([]);
          for (const [series, value] of added) {
            deltas.set(series, (deltas.get(series) ?? 0) + value);
          }
        };
        for (let round = 0; round < rounds; round++) {
          for (let i = 0; i < sets; i++) {
            const scheduler = work.create(depths[(i + round) % depths.length] ?? 1);
            bridges[i % bridges.length]?.observe(scheduler, { set: i });
            const width = Math.min(scheduler.depth, 1 + (i % 64));
            for (let w = 0; w < width; w++) scheduler.open(w, w);
            work.ms += 0.3;
            if (i % 3 === 0) scheduler.completeNext(1);
            if (i % 7 === 0) scheduler.discardStale();
          }
          await collect();
          for (const which of toClose) work.close(which);
          work.ms += 1.7;
          await collect();
        }
        const apart = [...last].filter(
          ([series, value]) => !isClose(deltas.get(series) ?? 0, value),
        );
        expect(apart).toEqual([]);
        work.end();
      }),
      { numRuns: 20 },
    );
  }, 60_000);

  test.each([1, 2, 100, 284, 285, 5000])(
    'at depth 1024 with a limit of %i',
    async (maxAttributeSets) => {
      const reader = new ManualReader();
      const bridge = new VerifyWindowMetrics({
        meterProvider: providerWith(reader),
        maxAttributeSets,
      });
      const work = new Workload();
      for (let i = 0; i < 400; i++) {
        const scheduler = work.create(1024);
        bridge.observe(scheduler, { set: i });
        for (let w = 0; w <= i; w++) {
          scheduler.open(w, w);
          work.ms += 0.1;
        }
      }
      const collected = await reader.read();
      work.expectIn(collected);
      expectFewPoints(collected);
      const sets = new Set(collected.points(OPENED).map(({ attributes }) => attributes.set));
      // One of them is the overflow, which has no such attribute.
      expect(sets.size).toBe(1 + Math.min(maxAttributeSets, 284));
      for (const set of sets) {
        const levels = collected
          .points(OCCUPANCY_TIME)
          .filter(({ attributes }) => attributes.set === set)
          .map(({ attributes }) => attributes[LEVEL]);
        expect(levels).toEqual(levels.map((_, level) => level));
      }
      work.end();
    },
  );

  test('where sets come from before there was a provider, and from another one', async () => {
    const limits = { maxAttributeSets: 1000 };
    const early = new VerifyWindowMetrics(limits);
    const first = new ManualReader();
    const elsewhere = new VerifyWindowMetrics({ ...limits, meterProvider: providerWith(first) });
    const reader = new ManualReader();
    const provider = providerWith(reader);
    const late = new VerifyWindowMetrics({ ...limits, meterProvider: provider });
    const work = new Workload();
    const observe = (bridge: VerifyWindowMetrics, by: string) => {
      for (let i = 0; i < 300; i++) {
        const scheduler = work.create(1 + (i % 30));
        bridge.observe(scheduler, { set: `${by} ${i}` });
        scheduler.open(0, 0);
        work.ms += 1;
        scheduler.completeNext(1);
        scheduler.open(1, 1);
        work.ms += 1;
      }
    };
    observe(late, 'late');
    observe(early, 'early');
    observe(elsewhere, 'elsewhere');
    metricsApi.setGlobalMeterProvider(provider);
    elsewhere.setMeterProvider(provider);
    observe(early, 'early');
    const collected = await reader.read();
    work.expectIn(collected);
    expectFewPoints(collected);
    expectOnePointForEachSeries(collected);
    // Their histograms move with them.
    const occupancy = collected.histogram(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY);
    expect(occupancy).toHaveLength(285);
    const before = counterValues(collected);
    // There and back again: nothing is counted twice.
    elsewhere.setMeterProvider(providerWith(new ManualReader()));
    elsewhere.setMeterProvider(provider);
    work.expectIn(await reader.read());
    expectNoneFell(counterValues(await reader.read()), before);
    work.end();
  });

  test.each([
    ['on the meter', undefined],
    ['with a producer', new PreaggregatedHistograms()],
  ])('for 500 models and 200 kinds of errors of generations, %s', async (_, histograms) => {
    const reader = new ManualReader(histograms && { metricProducers: [histograms.producer()] });
    const generations = new GenerationTelemetry({
      meterProvider: providerWith(reader),
      maxAttributeSets: 1000,
      ...(histograms && { histograms }),
    });
    for (let i = 0; i < 500; i++) {
      for (let kind = 0; kind < 8; kind++) {
        const generation = generations.start({ depth: 1, requestModel: `m${i}` });
        generation.tokensCommitted(2);
        generation.tokensCommitted(1);
        const name = `Kind${(i + kind) % 200}`;
        if (kind === 0) generation.end();
        else generation.fail(Object.assign(new Error(), { name }));
      }
    }
    const collected = await reader.read();
    expectFewPoints(collected);
    expectOnePointForEachSeries(collected);
    expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_COUNT)).toBe(4000);
    expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS)).toBe(12_000);
    const duration = METRICS.METRIC_GEN_AI_SERVER_REQUEST_DURATION;
    expect(collected.count(duration)).toBe(4000);
    // Within the budget nothing is left to the SDK, whose overflow tells no outcome.
    const points = collected.histogram(duration);
    expect(points.every(({ attributes }) => Object.keys(attributes).length > 1)).toBe(true);
    const models = new Set(points.map(({ attributes }) => attributes[ATTR_GEN_AI_REQUEST_MODEL]));
    expect(models.size).toBe(285);
    const types = new Set(points.map(({ attributes }) => attributes[ATTR_ERROR_TYPE]));
    expect(types.size).toBeLessThanOrEqual(1 + 64);
  });

  test('for 500 attribute sets of stages', async () => {
    const reader = new ManualReader();
    const meterProvider = providerWith(reader);
    for (let i = 0; i < 500; i++) {
      const metricAttributes = { set: i };
      const stage = new StageTelemetry({ index: i % 4, meterProvider, metricAttributes });
      stage.startWindow({}).compute(() => {});
    }
    const collected = await reader.read();
    const compute = METRICS.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION;
    expect(collected.histogram(compute)).toHaveLength(101);
    expect(collected.count(compute)).toBe(500);
  });
});

describe('attributes of the conventions', () => {
  const reserved = [...METRIC_ATTRIBUTES, ATTR_OTEL_METRIC_OVERFLOW];
  const value = fc.oneof(
    fc.string(),
    fc.integer(),
    fc.boolean(),
    fc.constantFrom('stale', 0, true),
  );
  const given = fc.dictionary(fc.constantFrom(...reserved, 'own', 'other'), value, {
    noNullPrototype: true,
  });

  /** What a host may keep of its attributes. */
  const kept = (attributes: Attributes) =>
    Object.fromEntries(Object.entries(attributes).filter(([name]) => !reserved.includes(name)));

  test('given by a host make no second point of one identity, and hide nothing', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(given, { maxLength: 8 }), async (all) => {
        const reader = new ManualReader();
        const telemetry = new PipelineTelemetry({ meterProvider: providerWith(reader) });
        for (const [i, attributes] of all.entries()) {
          const scheduler = new VerifyWindowScheduler({ depth: 2 });
          telemetry.observe(scheduler, attributes);
          scheduler.open(0, 0);
          scheduler.open(0, 0);
          scheduler.completeNext(1);
          if (i % 2 === 0) scheduler.discardStale();
          telemetry.recordControlComparison(i % 2 === 0, attributes);
          const generation = telemetry
            .generation({ depth: 1, metricAttributes: attributes })
            .start();
          generation.scheduler.open(0, 0);
          generation.tokensCommitted(1);
          if (i % 2 === 0) generation.fail(new RangeError());
          else generation.end();
        }
        const collected = await reader.read();
        expectOnePointForEachSeries(collected);
        expect(collected.sum(OPENED)).toBe(3 * all.length);
        expect(collected.sum(OPENED)).toBe(
          collected.sum(COMPLETED) + collected.sum(DROPPED) + collected.sum(IN_FLIGHT),
        );
        expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_COUNT)).toBe(all.length);
        expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS)).toBe(all.length);
        expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS)).toBe(
          all.length,
        );
        const sets = new Set(all.map((one) => JSON.stringify(Object.entries(kept(one)).sort())));
        expect(collected.points(OPENED)).toHaveLength(sets.size);
        for (const { attributes } of collected.points(OPENED)) {
          expect(kept(attributes)).toEqual(attributes);
        }
      }),
      { numRuns: 60 },
    );
  });

  test.each(reserved)('like %s are dropped, with one warning', async (name) => {
    // What was warned of is remembered for the life of the process, and so of this file.
    const { reader, warn, VerifyWindowMetrics: Fresh } = await freshCopy();
    const bridge = new Fresh({ meterProvider: providerWith(reader) });
    for (let i = 0; i < 3; i++) {
      const scheduler = new VerifyWindowScheduler({ depth: 1 });
      bridge.observe(scheduler, { [name]: 'x', run: i });
      scheduler.open(0, 0);
    }
    const collected = await reader.read();
    expect(collected.points(OPENED).map(({ attributes }) => attributes)).toEqual([
      { run: 0 },
      { run: 1 },
      { run: 2 },
    ]);
    expect(warn.mock.calls.map(([text]) => text)).toEqual([
      `llama-stage-otel: the metric attribute ${name} is set by the conventions; the one that was given is dropped`,
    ]);
  });

  test('of a stage are its own', async () => {
    const reader = new ManualReader();
    const stage = new StageTelemetry({
      index: 3,
      meterProvider: providerWith(reader),
      metricAttributes: { [ATTR_LLAMA_STAGE_STAGE_INDEX]: 7, run: 'a' },
    });
    stage.startWindow({}).compute(() => {});
    const compute = METRICS.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION;
    expect((await reader.read()).histogram(compute).map((point) => point.attributes)).toEqual([
      { [ATTR_LLAMA_STAGE_STAGE_INDEX]: 3, run: 'a' },
    ]);
  });

  async function freshCopy() {
    const warn = listenToDiag('warn');
    vi.resetModules();
    const { VerifyWindowMetrics } = await import('../../src/index.js');
    return { reader: new ManualReader(), warn, VerifyWindowMetrics };
  }
});

describe('odd values', () => {
  const fail = () => {
    throw new Error('hostile');
  };
  const hostileAttributes = [
    null,
    undefined,
    5,
    'text',
    [1],
    () => 1,
    { a: new Proxy(['x'], {}) },
    { a: Object.assign(['x'], { call: () => 1 }) },
    { a: new Proxy(['x'], { get: fail }) },
    Object.defineProperty({ b: 1 }, 'a', { get: fail, enumerable: true }),
    new Proxy({}, { ownKeys: fail }),
    new Proxy({ a: 1 }, { get: fail }),
    { a: null, b: undefined, c: Symbol('s'), d: 1n, e: {}, f: [{}], g: Number.NaN, h: [[1]] },
    { a: [undefined, 1], b: ['x', 1, null], c: -0 },
  ];
  const odd = fc.oneof(fc.anything({ withBigInt: true }), fc.constantFrom(...hostileAttributes));

  test('of attributes lose no window and no generation, and throw nothing', async () => {
    const complain = listenToDiag('error');
    const counts = async (all: readonly unknown[], own: unknown) => {
      const reader = new ManualReader();
      const telemetry = new PipelineTelemetry({
        meterProvider: providerWith(reader),
        metricAttributes: own as Attributes,
      });
      for (const each of all) {
        const attributes = each as Attributes;
        const scheduler = new VerifyWindowScheduler({ depth: 1 });
        telemetry.observe(scheduler, attributes);
        scheduler.open(0, 0);
        telemetry.recordControlComparison(true, attributes);
        telemetry.recordGeneration(scheduler.stats(), attributes);
        const plan = telemetry.generation({ depth: 1, metricAttributes: attributes });
        await plan.run(({ tokensCommitted }) => tokensCommitted(1));
        telemetry
          .stage({ index: 0, ...{ metricAttributes: attributes } })
          .startWindow(each)
          .end();
      }
      const collected = await reader.read();
      expectOnePointForEachSeries(collected);
      expect(collected.sum(OPENED)).toBe(2 * all.length);
      expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_COUNT)).toBe(all.length);
      expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS)).toBe(
        all.length,
      );
    };
    await counts(hostileAttributes, undefined);
    for (const own of hostileAttributes) await counts([{ run: 1 }, null], own);
    await fc.assert(fc.asyncProperty(fc.array(odd, { maxLength: 5 }), odd, counts));
    expect(complain).not.toHaveBeenCalled();
  });

  test('of the names of models and providers lose no generation', async () => {
    await fc.assert(
      fc.asyncProperty(odd, odd, odd, async (providerName, operationName, requestModel) => {
        const reader = new ManualReader();
        const generations = new GenerationTelemetry({
          meterProvider: providerWith(reader),
          providerName: providerName as string,
        });
        generations
          .start({
            depth: 1,
            operationName: operationName as string,
            requestModel: requestModel as string,
          })
          .end();
        const collected = await reader.read();
        expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_GENERATION_COUNT)).toBe(1);
        expect(collected.count(METRICS.METRIC_GEN_AI_SERVER_REQUEST_DURATION)).toBe(1);
      }),
    );
  });

  /** Runs what may refuse its argument, and fail in no other way. */
  async function refusesOrNot(act: () => unknown): Promise<void> {
    try {
      await act();
    } catch (error) {
      if (!(error instanceof VerifyWindowError)) throw error;
      expect(error.message.length).toBeLessThan(300);
    }
  }

  const names = [
    ...['depth', 'firstWindowId', 'clock', 'maxAttributeSets', 'meterProvider', 'tracerProvider'],
    ...['histograms', 'metricAttributes', 'providerName', 'maxWindowSpans', 'onWindowSpan'],
    ...['phases', 'index', 'id', 'layerStart', 'layerEnd', 'requestModel', 'requireParentSpan'],
    ...['enabled', 'metrics', 'spans'],
  ];
  const plain = fc.anything({ withBigInt: true });
  const options = fc.oneof(
    plain,
    fc.dictionary(fc.constantFrom(...names), plain, { noNullPrototype: true }),
  );

  test('of options and configurations are refused, or mean nothing', async () => {
    listenToDiag('warn');
    await fc.assert(
      fc.asyncProperty(options, async (given) => {
        const any = given as never;
        await refusesOrNot(() => new VerifyWindowScheduler(any).close());
        await refusesOrNot(async () => {
          const telemetry = new PipelineTelemetry(any);
          using scheduler = new VerifyWindowScheduler({ depth: 1 });
          telemetry.observe(scheduler);
          await telemetry.generation({ depth: 1 }).run(({ scheduler }) => scheduler.open(0, 0));
          telemetry
            .stage({ index: 0 })
            .startWindow({})
            .compute(() => {});
        });
        await refusesOrNot(() => new PipelineTelemetry().generation(any).run(() => {}));
        await refusesOrNot(() => new PipelineTelemetry().generation(any).start().end());
        await refusesOrNot(() => new PipelineTelemetry().stage(any).startWindow({}).end());
        await refusesOrNot(() => new VerifyWindowInstrumentation(any).disable());
        await refusesOrNot(() =>
          new VerifyWindowInstrumentation({ enabled: false }).setConfig(any),
        );
        await refusesOrNot(() => configFromEnvironment(any));
        const prefixed = Object.fromEntries(
          ['ENABLED', 'MAX_ATTRIBUTE_SETS', 'METRIC_ATTRIBUTES'].map((name) => [
            `OTEL_INSTRUMENTATION_LLAMA_STAGE_${name}`,
            any,
          ]),
        );
        await refusesOrNot(() => configFromEnvironment(prefixed));
        const bridge = new VerifyWindowMetrics();
        await refusesOrNot(() => bridge.setMaxAttributeSets(any));
        await refusesOrNot(() => bridge.setMeterProvider(any));
        await refusesOrNot(() => bridge.recordControlComparison(any));
      }),
      { numRuns: 100 },
    );
  });

  test('of statistics are refused, or mean nothing', async () => {
    const real = new VerifyWindowScheduler({ depth: 2 }).stats();
    const statistics = fc.oneof(
      plain,
      fc
        .dictionary(fc.constantFrom(...Object.keys(real)), plain, { noNullPrototype: true })
        .map((wrong) => ({ ...real, ...wrong })),
    );
    const { tracer } = new Tracing();
    await fc.assert(
      fc.asyncProperty(statistics, async (given) => {
        const stats = given as ReportedStats;
        await refusesOrNot(() => parseResponseTimings(stats));
        await refusesOrNot(() => responseTimings(stats));
        await refusesOrNot(() => pipelineAttributes(stats));
        await refusesOrNot(() => summaryAttributes(stats));
        await refusesOrNot(() => stampGenerationSpan(tracer.startSpan('generation'), stats));
        await refusesOrNot(() => new VerifyWindowMetrics().recordGeneration(stats));
      }),
      { numRuns: 500 },
    );
  });

  test.each([undefined, null, 0, 'equal', {}])(
    'a comparison that is %s is refused',
    async (isEqual) => {
      const reader = new ManualReader();
      const telemetry = new PipelineTelemetry({ meterProvider: providerWith(reader) });
      expect(() => telemetry.recordControlComparison(isEqual as boolean)).toThrow(
        VerifyWindowError,
      );
      expect((await reader.read()).names).not.toContain(
        METRICS.METRIC_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS,
      );
    },
  );
});

describe('response timings of strangers', () => {
  const most = Number.MAX_SAFE_INTEGER;
  const huge = fc.constantFrom(0, 1, 0.5, most, most - 1, 2 ** 52, Number.MAX_VALUE, 1e300);

  /** The timings of one generation, with what a stranger puts in their place. */
  const hostile = fc
    .dictionary(
      fc.constantFrom(
        ...Object.keys(responseTimings(new VerifyWindowScheduler({ depth: 2 }).stats())),
      ),
      huge,
      { noNullPrototype: true },
    )
    .map((wrong) => ({ ...example(100), ...wrong }));

  /** What a worker tells of a generation of this many milliseconds, serial all along. */
  function example(ms: number) {
    let now = 0;
    const scheduler = new VerifyWindowScheduler({ depth: 2, clock: () => now });
    scheduler.open(0, 0);
    now = ms;
    scheduler.completeNext(1);
    return responseTimings(scheduler.stats());
  }

  function record(bridge: VerifyWindowMetrics, timings: unknown): void {
    try {
      bridge.recordGeneration(parseResponseTimings(timings));
    } catch (error) {
      if (!(error instanceof VerifyWindowError)) throw error;
    }
  }

  test('make no counter infinite or fall, and later ones still count', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(hostile, { minLength: 5, maxLength: 8 }), async (all) => {
        const { reader, bridge } = setUp();
        let last = new Map<string, number>();
        for (const timings of all) {
          record(bridge, timings);
          const collected = await reader.read();
          expectFiniteCounters(collected);
          last = expectNoneFell(counterValues(collected), last);
        }
        const before = (await reader.read()).sum(OCCUPANCY_TIME);
        record(bridge, example(60_000));
        expect((await reader.read()).sum(OCCUPANCY_TIME)).toBeGreaterThan(before);
      }),
    );
  });

  test('at the most that they may say leave room for those of a worker', async () => {
    const { reader, bridge } = setUp();
    const at = (ms: number) => ({
      verify_window_stale_drain_ms: ms,
      verify_window_stale_stage0_compute_ms: ms,
      verify_window_stale_forward_write_ms: ms,
      verify_window_stale_downstream_wait_ms: ms,
      verify_window_stale_verify_elapsed_ms: ms,
    });
    for (let i = 0; i < 5; i++) record(bridge, { ...example(most), ...at(most) });
    const drain = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_DRAIN_TIME;
    const before = await reader.read();
    expect(before.sum(OPENED)).toBe(5);
    expect(before.sum(drain)).toBeGreaterThan(4e13);
    expectFiniteCounters(before);
    record(bridge, { ...example(60_000), ...at(1000) });
    const after = await reader.read();
    expect(after.sum(OPENED)).toBe(6);
    expect(after.sum(drain) - before.sum(drain)).toBeCloseTo(1, 1);
    expect(after.sum(OCCUPANCY_TIME) - before.sum(OCCUPANCY_TIME)).toBeCloseTo(60, 1);
  });

  function setUp() {
    const reader = new ManualReader();
    const meterProvider: MeterProvider = providerWith(reader);
    return { reader, bridge: new VerifyWindowMetrics({ meterProvider }) };
  }
});
