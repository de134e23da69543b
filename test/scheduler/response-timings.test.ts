import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FIGURES } from '../../semconv/index.js';
import {
  MAX_DEPTH,
  parseResponseTimings,
  pipelineAttributes,
  type ReportedStats,
  type ResponseTimings,
  responseTimings,
  VerifyWindowError,
  VerifyWindowScheduler,
} from '../../src/index.js';
import { closeTo } from './close-to.js';

type Key = keyof ResponseTimings;

const COUNTS = [
  'verify_window_depth',
  'verify_window_opened',
  'verify_window_max_in_flight',
  'verify_window_recovery_epochs',
  'verify_window_stale_marked',
  'verify_window_stale_discarded',
  'verify_window_horizon_refill_attempts',
  'verify_window_horizon_refill_successes',
  'verify_window_horizon_refill_tokens',
  'verify_window_horizon_refill_misses',
] as const satisfies Key[];

const FLAGS = [
  'verify_window_direct_prediction_return',
  'verify_window_direct_prediction_return_upstream_opened',
  'verify_window_direct_prediction_return_reverse_fallback',
] as const satisfies Key[];

const STALE_TIMES = [
  'verify_window_stale_drain_ms',
  'verify_window_stale_stage0_compute_ms',
  'verify_window_stale_forward_write_ms',
  'verify_window_stale_downstream_wait_ms',
  'verify_window_stale_verify_elapsed_ms',
] as const satisfies Key[];

/** The figures that follow from the time at each occupancy level. */
const DERIVED = [
  'verify_window_occupancy_total_ms',
  'verify_window_occupancy_parallel_ms',
  'verify_window_occupancy_parallel_fraction',
  'verify_window_occupancy_full_ms',
  'verify_window_occupancy_full_fraction',
  'verify_window_occupancy_average_in_flight',
] as const satisfies Key[];

const BY_DEPTH = 'verify_window_occupancy_ms_by_depth';

/** Every key, in the order of the wire. */
const KEYS = [
  'verify_window_depth',
  'verify_window_direct_prediction_return',
  'verify_window_direct_prediction_return_upstream_opened',
  'verify_window_direct_prediction_return_reverse_fallback',
  'verify_window_opened',
  'verify_window_max_in_flight',
  'verify_window_recovery_epochs',
  'verify_window_stale_marked',
  'verify_window_stale_discarded',
  'verify_window_stale_drain_ms',
  'verify_window_stale_stage0_compute_ms',
  'verify_window_stale_forward_write_ms',
  'verify_window_stale_downstream_wait_ms',
  'verify_window_stale_verify_elapsed_ms',
  'verify_window_horizon_refill_attempts',
  'verify_window_horizon_refill_successes',
  'verify_window_horizon_refill_tokens',
  'verify_window_horizon_refill_misses',
  'verify_window_occupancy_ms_by_depth',
  'verify_window_occupancy_total_ms',
  'verify_window_occupancy_parallel_ms',
  'verify_window_occupancy_parallel_fraction',
  'verify_window_occupancy_full_ms',
  'verify_window_occupancy_full_fraction',
  'verify_window_occupancy_average_in_flight',
] as const satisfies Key[];

const ms = fc.double({ min: 0, max: 1e9, noNaN: true });

/** Timings of generations that can be, worked out without the package. */
const timings: fc.Arbitrary<ResponseTimings> = fc
  .record({
    depth: fc.integer({ min: 1, max: 8 }),
    opened: fc.nat(1000),
    most: fc.integer({ min: 1, max: 8 }),
    counts: fc.tuple(fc.nat(), fc.nat(), fc.maxSafeNat()),
    path: fc.constantFrom('none', 'upstream', 'reverse'),
    refills: fc.tuple(fc.nat(100), fc.nat(100), fc.nat(100)),
    staleMs: fc.tuple(ms, ms, ms, ms, ms),
    levelMs: fc.array(ms, { minLength: 9, maxLength: 9 }),
  })
  .map(({ depth, opened, most, counts, path, refills, staleMs, levelMs }) => {
    const maxInFlight = Math.min(depth, opened, most);
    const byDepth = levelMs.slice(0, depth + 1).map((time, k) => (k > maxInFlight ? 0 : time));
    const sum = (times: number[]) => times.reduce((total, time) => total + time, 0);
    const totalMs = sum(byDepth);
    const parallelMs = sum(byDepth.slice(2));
    const fullMs = byDepth.at(-1) ?? 0;
    const windowMs = sum(byDepth.map((time, level) => time * level));
    const share = (part: number) => (totalMs === 0 ? 0 : part / totalMs);
    const [successes, misses, more] = refills;
    return {
      verify_window_depth: depth,
      verify_window_direct_prediction_return: path !== 'none',
      verify_window_direct_prediction_return_upstream_opened: path === 'upstream',
      verify_window_direct_prediction_return_reverse_fallback: path === 'reverse',
      verify_window_opened: opened,
      verify_window_max_in_flight: maxInFlight,
      verify_window_recovery_epochs: counts[0],
      verify_window_stale_marked: counts[1],
      verify_window_stale_discarded: counts[2],
      verify_window_stale_drain_ms: staleMs[0],
      verify_window_stale_stage0_compute_ms: staleMs[1],
      verify_window_stale_forward_write_ms: staleMs[2],
      verify_window_stale_downstream_wait_ms: staleMs[3],
      verify_window_stale_verify_elapsed_ms: staleMs[4],
      verify_window_horizon_refill_attempts: successes + misses,
      verify_window_horizon_refill_successes: successes,
      verify_window_horizon_refill_tokens: successes === 0 ? 0 : successes + more,
      verify_window_horizon_refill_misses: misses,
      verify_window_occupancy_ms_by_depth: byDepth,
      verify_window_occupancy_total_ms: totalMs,
      verify_window_occupancy_parallel_ms: parallelMs,
      verify_window_occupancy_parallel_fraction: share(parallelMs),
      verify_window_occupancy_full_ms: fullMs,
      verify_window_occupancy_full_fraction: share(fullMs),
      verify_window_occupancy_average_in_flight: share(windowMs),
    };
  });

/** Timings that a scheduler of depth 2 gave: 1 ms with none, 2 with one, 4 with two in flight. */
function example(): ResponseTimings {
  let nowMs = 0;
  const scheduler = new VerifyWindowScheduler({ depth: 2, clock: () => nowMs });
  nowMs = 1;
  scheduler.open(0, 0);
  nowMs = 3;
  scheduler.open(1, 1);
  nowMs = 7;
  scheduler.recordHorizonRefill(0);
  scheduler.recordHorizonRefill(5);
  scheduler.markDirectPredictionReturn(true);
  return responseTimings(scheduler.stats());
}

function parsedFrom(value: unknown): ReportedStats {
  const parsed = parseResponseTimings(value);
  if (parsed === undefined) throw new Error('found nothing');
  return parsed;
}

function rejection(value: unknown): VerifyWindowError {
  try {
    parseResponseTimings(value);
  } catch (error) {
    if (error instanceof VerifyWindowError) return error;
    throw error;
  }
  throw new Error('was not rejected');
}

/** Expects that `value` is rejected for what it holds at `key`, in a message of bounded length. */
function expectBlame(value: unknown, key: Key): void {
  const { code, message } = rejection(value);
  expect(code).toBe('invalid_argument');
  expect(message).toMatch(new RegExp(`^timings\\.${key} must be .+, got .+$`));
  expect(message.length).toBeLessThan(250);
}

const notNumber = fc.oneof(
  fc.constantFrom(undefined, null, {}, [], [1], Symbol('one'), 1n, () => 1),
  fc.boolean(),
  fc.string(),
  fc.nat().map(String),
);
const notDuration = fc.oneof(
  notNumber,
  fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
  fc.double({ max: -Number.MIN_VALUE, noNaN: true }),
);
const notCount = fc.oneof(
  notDuration,
  fc.double({ min: 0, noNaN: true }).filter((value) => !Number.isSafeInteger(value)),
);
const notFlag = fc.anything().filter((value) => typeof value !== 'boolean');

describe('response timings', () => {
  it('are the keys of the wire, in their order, and no others', () => {
    expect(Object.keys(example())).toEqual(KEYS);
  });

  it('share nothing with the statistics', () => {
    const stats = new VerifyWindowScheduler({ depth: 2 }).stats();
    responseTimings(stats).verify_window_occupancy_ms_by_depth.push(99);
    expect(stats.occupancyMsByDepth).toHaveLength(3);
  });
});

describe('parseResponseTimings', () => {
  it('gives back the statistics, also after a trip as JSON', () => {
    fc.assert(
      fc.property(timings, (valid) => {
        const parsed = responseTimings(parsedFrom(JSON.parse(JSON.stringify(valid))));
        expect(closeTo(parsed, valid)).toStrictEqual(valid);
      }),
    );
  });

  it('ignores other keys', () => {
    const others = fc.dictionary(
      fc
        .oneof(
          fc.string(),
          fc.string().map((name) => `verify_window_${name}`),
        )
        .filter((name) => !(KEYS as readonly string[]).includes(name)),
      fc.anything(),
    );
    fc.assert(
      fc.property(timings, others, (valid, more) => {
        expect(parseResponseTimings({ ...more, ...valid })).toStrictEqual(
          parseResponseTimings(valid),
        );
      }),
    );
  });

  it('takes an object without a prototype', () => {
    const bare = Object.assign(Object.create(null), example());
    expect(parseResponseTimings(bare)).toStrictEqual(parseResponseTimings(example()));
  });

  it('does not keep or change what it was given', () => {
    const given = example();
    const parsed = parsedFrom(given);
    expect(given).toEqual(example());
    given.verify_window_occupancy_ms_by_depth[0] = 99;
    expect(parsed.occupancyMsByDepth[0]).toBe(1);
  });

  it.each([
    undefined,
    null,
    5,
    true,
    'x'.repeat(1e6),
    [example()],
    () => example(),
    {},
    { predicted_n: 31, verify_window_target_depth: 2 },
  ])('gives nothing where there is nothing of ours (case %#)', (value) => {
    expect(parseResponseTimings(value)).toBeUndefined();
  });

  it('gives nothing of what throws when it is read', () => {
    const fail = () => {
      throw new TypeError('hostile');
    };
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const getter = Object.defineProperty(example(), 'verify_window_opened', { get: fail });
    const list = { ...example(), [BY_DEPTH]: new Proxy([1, 2, 4], { get: fail }) };
    for (const value of [
      proxy,
      getter,
      list,
      new Proxy(example(), { getOwnPropertyDescriptor: fail }),
    ]) {
      expect(parseResponseTimings(value)).toBeUndefined();
    }
  });

  const LATER = {
    'the paths of the direct return': FIGURES.filter(
      ({ introducedWith }) => introducedWith === 'direct_return',
    ),
    'the horizon refills': FIGURES.filter(
      ({ introducedWith }) => introducedWith === 'horizon_refill',
    ),
  };

  it.each(Object.entries(LATER))('reads timings that are older than %s', (_, figures) => {
    fc.assert(
      fc.property(timings, (valid) => {
        const older: Record<string, unknown> = { ...valid };
        for (const { timing } of figures) delete older[timing];
        const parsed = parsedFrom(older);
        for (const { statistic } of figures) expect(parsed).not.toHaveProperty(statistic);
        const { verify_window_direct_prediction_return: _whole, ...told } = older;
        expect(closeTo(responseTimings(parsed), older)).toMatchObject(told);
        for (const { attribute } of figures) {
          expect(pipelineAttributes(parsed)).not.toHaveProperty(attribute);
        }
      }),
    );
  });

  it.each(Object.entries(LATER))('refuses a part of %s', (_, figures) => {
    const [first, ...others] = figures;
    const part: Record<string, unknown> = { ...example() };
    for (const { timing } of others) delete part[timing];
    expect(part).toHaveProperty(first?.timing ?? '');
    for (const { timing } of others.slice(0, 1)) expectBlame(part, timing);
  });

  it('refuses more milliseconds than doubles count', () => {
    const most = Number.MAX_SAFE_INTEGER;
    for (const key of STALE_TIMES) {
      expect(parseResponseTimings({ ...example(), [key]: most })).toBeDefined();
      expectBlame({ ...example(), [key]: most + 1 }, key);
    }
    expectBlame({ ...example(), [BY_DEPTH]: [most, 1, 0] }, BY_DEPTH);
  });

  it.each(KEYS)('says that %s is missing', (key) => {
    const { [key]: value, ...others } = example();
    expectBlame(others, key);
    expect(rejection(others).message).toMatch(/got nothing$/);
    // Inherited is missing too: what was parsed from JSON owns its keys.
    expectBlame(Object.setPrototypeOf({ ...others }, { [key]: value }), key);
    expect(parseResponseTimings(Object.create(example()))).toBeUndefined();
  });

  it.each(KEYS)('does not repeat what a stranger wrote into %s', (key) => {
    const secret = 'secret '.repeat(1e4);
    for (const value of [secret, [secret], { [secret]: secret }]) {
      const bad = { ...example(), [key]: value };
      expectBlame(bad, key);
      expect(rejection(bad).message).not.toContain('secret');
    }
  });

  it.each(COUNTS)('blames %s where it is no count', (key) => {
    fc.assert(
      fc.property(timings, notCount, (valid, bad) => expectBlame({ ...valid, [key]: bad }, key)),
    );
  });

  it.each(FLAGS)('blames %s where it is no boolean', (key) => {
    fc.assert(
      fc.property(timings, notFlag, (valid, bad) => expectBlame({ ...valid, [key]: bad }, key)),
    );
  });

  it.each([...STALE_TIMES, ...DERIVED])('blames %s where it is no duration', (key) => {
    fc.assert(
      fc.property(timings, notDuration, (valid, bad) => expectBlame({ ...valid, [key]: bad }, key)),
    );
  });

  it('blames the time by depth where an entry of it is no duration', () => {
    fc.assert(
      fc.property(timings, notDuration, fc.nat(), (valid, bad, index) => {
        const byDepth = valid[BY_DEPTH];
        expectBlame(
          { ...valid, [BY_DEPTH]: byDepth.with(index % byDepth.length, bad as never) },
          BY_DEPTH,
        );
      }),
    );
  });

  it.each([
    ['is too short', [1, 2]],
    ['is too long', [1, 2, 4, 0]],
    ['has holes', new Array(3)],
    ['has a hole', Object.assign(new Array(3), [1, 2])],
    ['only looks like an array', { 0: 1, 1: 2, 2: 4, length: 3 }],
    ['is a typed array', Float64Array.of(1, 2, 4)],
    ['adds up to more than doubles hold', [Number.MAX_VALUE, Number.MAX_VALUE, 0]],
    ['weighs more than doubles hold', [0, 0, Number.MAX_VALUE]],
  ])('blames the time by depth where it %s', (_, value) => {
    expectBlame({ ...example(), [BY_DEPTH]: value }, BY_DEPTH);
  });

  it.each<[Key, Partial<ResponseTimings>]>([
    ['verify_window_depth', { verify_window_depth: 0 }],
    ['verify_window_depth', { verify_window_depth: MAX_DEPTH + 1 }],
    [BY_DEPTH, { verify_window_depth: 3 }],
    ['verify_window_max_in_flight', { verify_window_max_in_flight: 3, verify_window_opened: 9 }],
    ['verify_window_max_in_flight', { verify_window_max_in_flight: 2, verify_window_opened: 1 }],
    ['verify_window_max_in_flight', { verify_window_max_in_flight: 0 }],
    [
      'verify_window_direct_prediction_return_reverse_fallback',
      { verify_window_direct_prediction_return_reverse_fallback: true },
    ],
    ['verify_window_direct_prediction_return', { verify_window_direct_prediction_return: false }],
    [
      'verify_window_direct_prediction_return',
      { verify_window_direct_prediction_return_upstream_opened: false },
    ],
    ['verify_window_horizon_refill_attempts', { verify_window_horizon_refill_attempts: 3 }],
    ['verify_window_horizon_refill_attempts', { verify_window_horizon_refill_misses: 0 }],
    ['verify_window_horizon_refill_tokens', { verify_window_horizon_refill_tokens: 0 }],
  ])('blames %s for a contradiction: %o', (key, wrong) => {
    expectBlame({ ...example(), ...wrong }, key);
  });

  it.each(DERIVED)('works %s out anew, and blames one that is not what follows', (key) => {
    fc.assert(
      fc.property(timings, fc.double({ min: -0.9, max: 0.9, noNaN: true }), (valid, offset) => {
        const slack = 1e-3 * Math.max(1, valid[key]);
        const rounded = { ...valid, [key]: Math.max(0, valid[key] + offset * slack) };
        expect(parseResponseTimings(rounded)).toStrictEqual(parseResponseTimings(valid));
        expectBlame({ ...valid, [key]: valid[key] + 1.1 * slack }, key);
        if (valid[key] > 1.1 * slack)
          expectBlame({ ...valid, [key]: valid[key] - 1.1 * slack }, key);
      }),
    );
  });

  it('leaves room for derived figures that were rounded to three decimals', () => {
    fc.assert(
      fc.property(timings, (valid) => {
        const rounded = { ...valid };
        for (const key of DERIVED) rounded[key] = Math.round(valid[key] * 1000) / 1000;
        expect(parseResponseTimings(rounded)).toStrictEqual(parseResponseTimings(valid));
      }),
    );
  });
});
