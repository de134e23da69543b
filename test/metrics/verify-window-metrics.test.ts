import { DiagLogLevel, diag, metrics as metricsApi } from '@opentelemetry/api';
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  ATTR_ERROR_TYPE,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
  ATTR_OTEL_METRIC_OVERFLOW,
} from '../../semconv/index.js';
import * as METRICS from '../../semconv/metrics.js';
import { SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION } from '../../src/guard.js';
import {
  parseResponseTimings,
  responseTimings,
  VerifyWindowMetrics,
  type VerifyWindowMetricsOptions,
  VerifyWindowScheduler,
} from '../../src/index.js';
import { type Collected, ManualReader, providerWith } from './collected.js';

const OPENED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const COMPLETED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED;
const DROPPED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED;
const ERRORS = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ERRORS;
const IN_FLIGHT = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT;
const CAPACITY = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY;
const SCHEDULERS = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT;
const OCCUPANCY_TIME = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME;
const PARALLEL_TIME = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME;
const FULL_TIME = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME;
const OCCUPANCY = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY;
const DURATION = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION;
const AVERAGE_IN_FLIGHT = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT;

/** A bridge with a reader of its own, and schedulers under one fake clock. */
function setUp(options: Omit<VerifyWindowMetricsOptions, 'meter'> = {}) {
  const reader = new ManualReader();
  const provider = providerWith(reader);
  const bridge = new VerifyWindowMetrics({ ...options, meterProvider: provider });
  const time = { ms: 0 };
  const newScheduler = (depth: number) =>
    new VerifyWindowScheduler({ depth, clock: () => time.ms });
  return { reader, provider, bridge, time, newScheduler };
}

afterEach(() => {
  metricsApi.disable();
  diag.disable();
  vi.restoreAllMocks();
});

describe('a workload', () => {
  /** Depth 2: two windows for 10 ms, one accepted, the other stale; then closed with one open. */
  async function collectWorkload(): Promise<Collected> {
    const { reader, bridge, time, newScheduler } = setUp();
    const scheduler = newScheduler(2);
    bridge.observe(scheduler, { model: 'm' });
    time.ms += 5;
    scheduler.open(0, 0);
    scheduler.open(4, 4);
    time.ms += 10;
    scheduler.completeNext(1, { proposedTokens: 4, acceptedTokens: 3 });
    scheduler.markRecoveryEpoch(1);
    time.ms += 20;
    scheduler.completeNext(2, { stale: true });
    scheduler.recordStaleExecution({
      drainMs: 1000,
      stage0ComputeMs: 2000,
      forwardWriteMs: 3000,
      downstreamWaitMs: 4000,
      verifyElapsedMs: 5000,
    });
    scheduler.recordHorizonRefill(7);
    scheduler.recordHorizonRefill(0);
    scheduler.markDirectPredictionReturn(true);
    expect(() => scheduler.completeNext(9)).toThrow();
    scheduler.open(8, 8);
    time.ms += 5;
    scheduler.close();
    return reader.read();
  }

  test('gives every metric of the scheduler its value', async () => {
    const collected = await collectWorkload();
    const { sum } = { sum: collected.sum.bind(collected) };
    expect(sum(OPENED, { model: 'm' })).toBe(3);
    expect(sum(COMPLETED, { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT]: 'partial_accept' })).toBe(1);
    expect(sum(COMPLETED, { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT]: 'stale' })).toBe(1);
    expect(sum(COMPLETED)).toBe(2);
    expect(sum(DROPPED, { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON]: 'closed' })).toBe(1);
    expect(sum(ERRORS, { [ATTR_ERROR_TYPE]: 'reply_without_window' })).toBe(1);
    expect(sum(ERRORS)).toBe(1);
    expect([sum(IN_FLIGHT), sum(CAPACITY), sum(SCHEDULERS)]).toEqual([0, 0, 0]);
    const level = (value: number) =>
      sum(OCCUPANCY_TIME, { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL]: value });
    expect([level(0), level(1), level(2)]).toEqual([0.005, 0.025, 0.01]);
    expect(sum(PARALLEL_TIME)).toBe(0.01);
    expect(sum(FULL_TIME)).toBe(0.01);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS)).toBe(1);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED)).toBe(1);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_DISCARDED)).toBe(1);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_DRAIN_TIME)).toBe(1);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_STAGE0_COMPUTE_TIME)).toBe(2);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_FORWARD_WRITE_TIME)).toBe(3);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_DOWNSTREAM_WAIT_TIME)).toBe(4);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_VERIFY_TIME)).toBe(5);
    const refills = (outcome: string) =>
      sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS, {
        [ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME]: outcome,
      });
    expect([refills('success'), refills('miss')]).toEqual([1, 1]);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_TOKENS)).toBe(7);
    const returns = (path: string) =>
      sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS, {
        [ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH]: path,
      });
    expect([returns('upstream_opened'), returns('reverse_fallback')]).toEqual([1, 0]);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS)).toBe(4);
    expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS)).toBe(3);
  });

  test('gives every histogram its values', async () => {
    const collected = await collectWorkload();
    const [point] = collected.histogram(DURATION);
    expect(point?.attributes).toEqual({ model: 'm' });
    expect(point?.value).toMatchObject({ count: 2, min: 0.01, max: 0.03 });
    expect(point?.value.buckets.boundaries).toEqual([
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
    ]);
    const values = (name: string) => collected.histogram(name)[0]?.value;
    expect(values(OCCUPANCY)).toMatchObject({ count: 3, sum: 4, min: 1, max: 2 });
    expect(values(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH)).toMatchObject({
      count: 1,
      sum: 3,
    });
    expect(values(AVERAGE_IN_FLIGHT)?.sum).toBeCloseTo(45 / 40);
    expect(values(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION)?.sum).toBe(0.25);
    expect(values(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION)?.sum).toBe(0.25);
    expect(values(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT)?.sum).toBe(2);
  });

  test('covers exactly the scheduler metrics of the conventions', async () => {
    const collected = await collectWorkload();
    const expected = Object.values(METRICS).filter((name) =>
      name.startsWith('llama_stage.verify_window.'),
    );
    expect(collected.names.toSorted()).toEqual(expected.toSorted());
  });

  test('carries nothing but the given attributes and bounded ones of its own', async () => {
    const { result } = await collectWorkload();
    const keys = new Set(
      result.resourceMetrics.scopeMetrics
        .flatMap((scope) => scope.metrics)
        .flatMap((metric) => metric.dataPoints as { attributes: object }[])
        .flatMap((point) => Object.keys(point.attributes)),
    );
    expect([...keys].toSorted()).toEqual(
      [
        'model',
        ATTR_ERROR_TYPE,
        ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH,
        ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON,
        ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME,
        ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL,
        ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
      ].toSorted(),
    );
  });
});

describe('live schedulers', () => {
  test('are read at the moment of a collection, and leave the gauges when they close', async () => {
    const { reader, bridge, time, newScheduler } = setUp();
    const a = newScheduler(4);
    const b = newScheduler(2);
    bridge.observe(a);
    bridge.observe(b);
    a.open(0, 0);
    a.open(1, 1);
    b.open(0, 0);
    time.ms += 1000;
    const live = await reader.read();
    expect([live.sum(IN_FLIGHT), live.sum(CAPACITY), live.sum(SCHEDULERS)]).toEqual([3, 6, 2]);
    expect(live.sum(OCCUPANCY_TIME)).toBe(2);
    expect(live.sum(PARALLEL_TIME)).toBe(1);
    expect(live.sum(FULL_TIME)).toBe(0);
    a.close();
    const after = await reader.read();
    expect([after.sum(IN_FLIGHT), after.sum(CAPACITY), after.sum(SCHEDULERS)]).toEqual([1, 2, 1]);
    expect(after.sum(OPENED)).toBe(3);
  });

  test('count from their birth when attached late, and at once when attached closed', async () => {
    const { reader, bridge, time, newScheduler } = setUp();
    const late = newScheduler(2);
    late.open(0, 0);
    time.ms += 500;
    bridge.observe(late);
    const closed = newScheduler(2);
    closed.open(0, 0);
    closed.close();
    bridge.observe(closed);
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.sum(OCCUPANCY_TIME)).toBe(0.5);
    expect(collected.count(AVERAGE_IN_FLIGHT)).toBe(1);
  });

  test('count once when attached twice', async () => {
    const { reader, bridge, newScheduler } = setUp();
    const scheduler = newScheduler(2);
    bridge.observe(scheduler, { a: 1 });
    bridge.observe(scheduler, { b: 2 });
    scheduler.open(0, 0);
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(1);
    expect(collected.count(OCCUPANCY)).toBe(1);
  });

  test('whose clock throws do not take the numbers of the others along', async () => {
    const { reader, bridge, newScheduler } = setUp();
    let broken = false;
    const faulty = new VerifyWindowScheduler({
      depth: 1,
      clock: () => {
        if (broken) throw new Error('no time');
        return 0;
      },
    });
    const sound = newScheduler(1);
    bridge.observe(faulty);
    bridge.observe(sound);
    sound.open(0, 0);
    broken = true;
    expect((await reader.read()).sum(OPENED)).toBe(1);
  });

  test('10,000 that come and go between two collections are all counted', async () => {
    const { reader, bridge, newScheduler } = setUp();
    await reader.read();
    for (let i = 0; i < 10_000; i++) {
      const scheduler = newScheduler(2);
      bridge.observe(scheduler);
      scheduler.open(0, 0);
      scheduler.completeNext(1);
      scheduler.close();
    }
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(10_000);
    expect(collected.sum(COMPLETED)).toBe(10_000);
    expect(collected.sum(SCHEDULERS)).toBe(0);
    expect(collected.count(AVERAGE_IN_FLIGHT)).toBe(10_000);
  });

  test('refuse calls after their end, and that is counted', async () => {
    const { reader, bridge, newScheduler } = setUp();
    const scheduler = newScheduler(1);
    bridge.observe(scheduler);
    scheduler.close();
    expect(() => scheduler.open(0, 0)).toThrow();
    const collected = await reader.read();
    expect(collected.sum(ERRORS, { [ATTR_ERROR_TYPE]: 'closed' })).toBe(1);
    expect(collected.sum(ERRORS)).toBe(1);
  });
});

test('a call refused while a scheduler closes is counted once', async () => {
  const { reader, bridge, newScheduler } = setUp();
  const scheduler = newScheduler(1);
  // Subscribed before the bridge, so it runs before the bridge knows of the close.
  scheduler.subscribe({ closed: () => scheduler.open(0, 0) });
  bridge.observe(scheduler);
  scheduler.subscribe({ closed: () => scheduler.open(0, 0) });
  scheduler.close();
  expect((await reader.read()).sum(ERRORS)).toBe(2);
});

describe('a scheduler that was forgotten', () => {
  test('is folded in when it is collected, its windows dropped', async () => {
    const { reader, bridge, time, newScheduler } = setUp();
    const forget = () => {
      const scheduler = newScheduler(3);
      bridge.observe(scheduler);
      scheduler.open(0, 0);
      scheduler.open(1, 1);
    };
    forget();
    time.ms += 1000;
    await vi.waitFor(async () => {
      globalThis.gc?.();
      expect((await reader.read()).sum(SCHEDULERS)).toBe(0);
    });
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.sum(DROPPED, { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON]: 'closed' })).toBe(
      2,
    );
    expect(collected.sum(IN_FLIGHT)).toBe(0);
    expect(collected.sum(PARALLEL_TIME)).toBe(1);
    // Its end is not known, so it has no average.
    expect(collected.count(AVERAGE_IN_FLIGHT)).toBe(0);
  });
});

describe('attribute sets', () => {
  test('are the same whatever the order of their keys', async () => {
    const { reader, bridge, newScheduler } = setUp();
    for (const attributes of [
      { a: 1, b: 'x' },
      { b: 'x', a: 1 },
    ]) {
      const scheduler = newScheduler(1);
      bridge.observe(scheduler, attributes);
      scheduler.open(0, 0);
    }
    const points = (await reader.read()).points(OPENED);
    expect(points.map(({ attributes, value }) => ({ attributes, value }))).toEqual([
      { attributes: { a: 1, b: 'x' }, value: 2 },
    ]);
  });

  test('past the limit are counted together as overflow', async () => {
    const { reader, bridge, newScheduler } = setUp({ maxAttributeSets: 2 });
    for (let i = 0; i < 100; i++) {
      const scheduler = newScheduler(1);
      bridge.observe(scheduler, { tenant: `t${i}` });
      scheduler.open(0, 0);
      scheduler.completeNext(1);
    }
    const collected = await reader.read();
    expect(collected.points(OPENED).map((point) => point.attributes)).toEqual([
      { tenant: 't0' },
      { tenant: 't1' },
      { [ATTR_OTEL_METRIC_OVERFLOW]: true },
    ]);
    expect(collected.sum(OPENED, { [ATTR_OTEL_METRIC_OVERFLOW]: true })).toBe(98);
    expect(collected.histogram(DURATION)).toHaveLength(3);
  });

  test('leave out what is no attribute value, and are not changed by their maker', async () => {
    const { reader, bridge, newScheduler } = setUp();
    const attributes: Record<string, unknown> = {
      kept: 'x',
      list: ['a'],
      missing: undefined,
      object: {},
      call: () => 1,
      number: Number.NaN,
    };
    const scheduler = newScheduler(1);
    bridge.observe(scheduler, attributes as never);
    attributes.kept = 'y';
    (attributes.list as string[]).push('b');
    scheduler.open(0, 0);
    const [point] = (await reader.read()).points(OPENED);
    expect(point?.attributes).toEqual({ kept: 'x', list: ['a'] });
  });

  test.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])(
    'cannot be limited to %s',
    (maxAttributeSets) => {
      expect(() => new VerifyWindowMetrics({ maxAttributeSets })).toThrow(
        `maxAttributeSets must be an integer of at least 1, got ${maxAttributeSets}`,
      );
    },
  );
});

describe('providers and readers', () => {
  test('a global provider registered after the bridge and its schedulers is found', async () => {
    const bridge = new VerifyWindowMetrics();
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    bridge.observe(scheduler);
    scheduler.open(0, 0);
    const reader = new ManualReader();
    metricsApi.setGlobalMeterProvider(providerWith(reader));
    scheduler.open(1, 1);
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.count(OCCUPANCY)).toBe(1);
    expect(collected.result.resourceMetrics.scopeMetrics[0]?.scope.name).toBe('llama-stage-otel');
  });

  test('a global provider that is replaced is left, and not called again', async () => {
    const first = new ManualReader();
    metricsApi.setGlobalMeterProvider(providerWith(first));
    const bridge = new VerifyWindowMetrics();
    bridge.observe(new VerifyWindowScheduler({ depth: 2 }));
    metricsApi.disable();
    const second = new ManualReader();
    metricsApi.setGlobalMeterProvider(providerWith(second));
    bridge.observe(new VerifyWindowScheduler({ depth: 2 }));
    expect((await second.read()).sum(SCHEDULERS)).toBe(2);
    expect((await first.read()).sum(SCHEDULERS)).toBe(0);
  });

  test('several readers each get everything, cumulative and delta', async () => {
    const cumulative = new ManualReader();
    const delta = ManualReader.delta();
    const provider = providerWith(cumulative, delta);
    const bridge = new VerifyWindowMetrics({ meterProvider: provider });
    const time = { ms: 0 };
    const run = (windows: number) => {
      const scheduler = new VerifyWindowScheduler({ depth: 1, clock: () => time.ms });
      bridge.observe(scheduler);
      for (let id = 1; id <= windows; id++) {
        scheduler.open(id, id);
        time.ms += 10;
        scheduler.completeNext(id);
      }
      scheduler.close();
    };
    run(3);
    expect((await cumulative.read()).sum(OPENED)).toBe(3);
    expect((await delta.read()).sum(OPENED)).toBe(3);
    run(2);
    const [all, recent] = [await cumulative.read(), await delta.read()];
    expect([all.sum(OPENED), recent.sum(OPENED)]).toEqual([5, 2]);
    expect([all.count(DURATION), recent.count(DURATION)]).toEqual([5, 2]);
    expect(all.sum(OCCUPANCY_TIME)).toBeCloseTo(0.05);
    expect(recent.sum(OCCUPANCY_TIME)).toBeCloseTo(0.02);
  });

  test('while it is disabled its metrics stand still, with nothing in flight, and nothing throws', async () => {
    const { reader, bridge, newScheduler } = setUp();
    const scheduler = newScheduler(2);
    bridge.observe(scheduler);
    scheduler.open(0, 0);
    bridge.disable();
    bridge.disable();
    scheduler.open(1, 1);
    scheduler.close();
    bridge.observe(newScheduler(1));
    bridge.recordGeneration(newScheduler(1).stats());
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(1);
    expect([IN_FLIGHT, CAPACITY, SCHEDULERS].map((name) => collected.sum(name))).toEqual([0, 0, 0]);
    expect(collected.count(OCCUPANCY)).toBe(1);
  });

  test('once it is enabled again, no counter has fallen and nothing is counted twice', async () => {
    const { reader, bridge, newScheduler } = setUp();
    const scheduler = newScheduler(4);
    bridge.observe(scheduler);
    scheduler.open(0, 0);
    expect((await reader.read()).sum(OPENED)).toBe(1);
    bridge.disable();
    scheduler.open(1, 1);
    const another = newScheduler(4);
    bridge.observe(another);
    another.open(0, 0);
    another.close();
    bridge.enable();
    bridge.enable();
    scheduler.open(2, 2);
    const collected = await reader.read();
    expect(collected.sum(OPENED)).toBe(4);
    expect(collected.count(OCCUPANCY)).toBe(2);
  });

  test('while it is disabled it follows to another provider', async () => {
    const [reader, other] = [new ManualReader(), new ManualReader()];
    metricsApi.setGlobalMeterProvider(providerWith(reader));
    const bridge = new VerifyWindowMetrics();
    const scheduler = new VerifyWindowScheduler({ depth: 4 });
    bridge.observe(scheduler);
    bridge.disable();
    bridge.setMeterProvider(providerWith(other));
    scheduler.open(0, 0);
    expect((await other.read()).points(OPENED)).toEqual([]);
    bridge.enable();
    scheduler.open(1, 1);
    expect((await other.read()).sum(OPENED)).toBe(2);
    expect((await other.read()).count(OCCUPANCY)).toBe(1);
    const left = await reader.read();
    expect([left.sum(OPENED), left.sum(IN_FLIGHT)]).toEqual([0, 0]);
  });

  test('an instrument that throws is reported once, and never reaches the host', () => {
    const error = vi.fn();
    const logger = { error, warn: vi.fn(), info: vi.fn(), debug: vi.fn(), verbose: vi.fn() };
    diag.setLogger(logger, { logLevel: DiagLogLevel.ERROR });
    const meterProvider = providerWith(new ManualReader());
    const meter = meterProvider.getMeter(SCOPE_NAME, SCOPE_VERSION, { schemaUrl: SCHEMA_URL });
    const createHistogram = meter.createHistogram.bind(meter);
    meter.createHistogram = (name, options) => {
      const histogram = createHistogram(name, options);
      histogram.record = () => {
        throw new Error('broken');
      };
      return histogram;
    };
    const bridge = new VerifyWindowMetrics({ meterProvider });
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    bridge.observe(scheduler);
    for (let id = 1; id <= 3; id++) {
      scheduler.open(id, id);
      scheduler.completeNext(id);
    }
    scheduler.close();
    expect(error).toHaveBeenCalledTimes(1);
    expect(error.mock.calls[0]?.[0]).toContain('recording verify-window metrics failed');
  });
});

describe('a generation known from its response timings alone', () => {
  test('adds what they tell, and makes nothing up', async () => {
    const { reader, bridge, time, newScheduler } = setUp();
    const remote = newScheduler(2);
    remote.open(0, 0);
    remote.open(1, 1);
    time.ms += 100;
    remote.completeNext(1, { proposedTokens: 4, acceptedTokens: 4 });
    remote.markDirectPredictionReturn(false);
    remote.close();
    const wire = JSON.parse(JSON.stringify(responseTimings(remote.stats())));
    bridge.recordGeneration(parseResponseTimings(wire), { backend: 'b' });
    const collected = await reader.read();
    expect(collected.sum(OPENED, { backend: 'b' })).toBe(2);
    expect(
      collected.sum(COMPLETED, { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT]: 'unverified' }),
    ).toBe(2);
    expect(collected.sum(COMPLETED)).toBe(2);
    expect(collected.sum(PARALLEL_TIME)).toBe(0.1);
    expect(collected.sum(FULL_TIME)).toBe(0.1);
    expect(
      collected.sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS, {
        [ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH]: 'reverse_fallback',
      }),
    ).toBe(1);
    expect(collected.count(AVERAGE_IN_FLIGHT)).toBe(1);
    expect([collected.count(DURATION), collected.count(OCCUPANCY)]).toEqual([0, 0]);
    expect(collected.sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS)).toBe(0);
  });

  test('is refused where it contradicts itself, and adds nothing', async () => {
    const { reader, bridge, newScheduler } = setUp();
    const stats = { ...newScheduler(2).stats(), opened: Number.NaN };
    expect(() => bridge.recordGeneration(stats)).toThrow('timings.verify_window_opened must be');
    expect((await reader.read()).points(OPENED)).toEqual([]);
  });
});
