import { FIGURES, type FigureKind, type ResponseTimings } from '../../semconv/figures.js';
import { isCount, MAX_DEPTH } from './counts.js';
import { refuseArgument } from './error.js';
import { copyOf, occupancyOf, type VerifyWindowStats } from './stats.js';

export type { ResponseTimings } from '../../semconv/figures.js';

type Key = keyof ResponseTimings;

type GivenTimings = Partial<Record<Key, unknown>>;

/** The kind of each timing. */
const KINDS: ReadonlyMap<Key, FigureKind> = new Map(
  FIGURES.flatMap(({ kind, partOf, timing }) =>
    [partOf, timing].filter((key) => key !== undefined).map((key) => [key, kind] as const),
  ),
);

/** The entries that a response's `timings` object gets. */
export function responseTimings(stats: VerifyWindowStats): ResponseTimings {
  const timings: GivenTimings = {};
  for (const { partOf, statistic, timing } of FIGURES) {
    if (partOf !== undefined) timings[partOf] ||= stats[statistic];
    timings[timing] = copyOf(stats[statistic]);
  }
  return timings as ResponseTimings;
}

/**
 * Reads the verify-window keys of a `timings` object as it came off the wire, from a worker in
 * any language. Other keys are ignored. Nothing is taken on trust: figures that follow from others
 * must agree with them to one part in a thousand, which leaves room for rounding on the way, and
 * are then worked out anew.
 *
 * @throws {VerifyWindowError} `invalid_argument`, with the key that is missing or wrong, what it
 * holds and what is allowed.
 */
export function parseResponseTimings(timings: unknown): VerifyWindowStats {
  if (typeof timings !== 'object' || timings === null || Array.isArray(timings)) {
    refuseArgument('timings', 'an object', timings);
  }
  const given = readTimings(timings as Record<string, unknown>);
  checkWindows(given);
  checkDirectReturn(given);
  checkHorizonRefills(given);
  checkOccupancy(given);
  return statsOf(given);
}

/** The timings alone, each of its kind; whether they go together is still open. */
function readTimings(timings: Record<string, unknown>): ResponseTimings {
  const given: GivenTimings = {};
  for (const key of KINDS.keys()) {
    given[key] = Object.hasOwn(timings, key) ? timings[key] : undefined;
  }
  const allowed = allowedAt(depthOf(given));
  for (const [key, kind] of KINDS) {
    if (!allowed[kind].includes(given[key])) refuse(given, key, allowed[kind].text);
  }
  return given as ResponseTimings;
}

function depthOf(given: GivenTimings): number {
  const depth = given.verify_window_depth;
  if (!isCount(depth)) refuse(given, 'verify_window_depth', COUNT.text);
  if (depth >= 1 && depth <= MAX_DEPTH) return depth;
  refuse(given, 'verify_window_depth', `an integer from 1 to ${MAX_DEPTH}`);
}

/** The values that a timing may have, and what to call them. */
interface Allowed {
  readonly text: string;
  includes(value: unknown): boolean;
}

const COUNT: Allowed = { text: 'an integer from 0 to 2^53 - 1', includes: isCount };
const QUANTITY: Allowed = {
  text: 'a finite number of milliseconds, 0 or more',
  includes: isQuantity,
};
const FLAG: Allowed = {
  text: 'true or false',
  includes: (value) => typeof value === 'boolean',
};

/** What a timing of each kind may be, in a pipeline of that depth. */
function allowedAt(depth: number): Readonly<Record<FigureKind, Allowed>> {
  return {
    count: COUNT,
    boolean: FLAG,
    ms: QUANTITY,
    fraction: QUANTITY,
    average: QUANTITY,
    ms_by_level: {
      text: `${depth + 1} finite numbers of milliseconds, 0 or more (depth + 1)`,
      includes: (value) => Array.isArray(value) && isOccupancy(value, depth),
    },
  };
}

function isQuantity(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value < Number.POSITIVE_INFINITY;
}

function isOccupancy(values: readonly unknown[], depth: number): boolean {
  if (values.length !== depth + 1) return false;
  // A hole in an array becomes undefined in its copy, and is passed over by `every`.
  const times = [...values];
  // Finite entries can still add up to infinity.
  return (
    times.every(isQuantity) && Number.isFinite(times.reduce((total, ms) => total + ms, 0) * depth)
  );
}

function checkWindows(given: ResponseTimings): void {
  const { verify_window_max_in_flight: maxInFlight, verify_window_opened: opened } = given;
  if (maxInFlight > Math.min(given.verify_window_depth, opened)) {
    const allowed = 'at most verify_window_depth and verify_window_opened';
    refuse(given, 'verify_window_max_in_flight', allowed);
  }
  if (maxInFlight === 0 && opened > 0) {
    refuse(given, 'verify_window_max_in_flight', 'at least 1 where windows were opened');
  }
}

function checkDirectReturn(given: ResponseTimings): void {
  const isUpstreamOpened = given.verify_window_direct_prediction_return_upstream_opened;
  const isReverseFallback = given.verify_window_direct_prediction_return_reverse_fallback;
  if (isUpstreamOpened && isReverseFallback) {
    const key = 'verify_window_direct_prediction_return_reverse_fallback';
    refuse(given, key, 'false where the upstream opened the sink');
  }
  if (given.verify_window_direct_prediction_return !== (isUpstreamOpened || isReverseFallback)) {
    const allowed = 'true exactly where one of the two paths is';
    refuse(given, 'verify_window_direct_prediction_return', allowed);
  }
}

function checkHorizonRefills(given: ResponseTimings): void {
  const successes = given.verify_window_horizon_refill_successes;
  const attempts = successes + given.verify_window_horizon_refill_misses;
  if (given.verify_window_horizon_refill_attempts !== attempts) {
    refuse(given, 'verify_window_horizon_refill_attempts', 'the sum of successes and misses');
  }
  if (given.verify_window_horizon_refill_tokens < successes) {
    refuse(given, 'verify_window_horizon_refill_tokens', 'at least one for each success');
  }
}

function checkOccupancy(given: ResponseTimings): void {
  const byDepth = given.verify_window_occupancy_ms_by_depth;
  const maxInFlight = given.verify_window_max_in_flight;
  if (byDepth.some((ms, level) => level > maxInFlight && ms > 0)) {
    const allowed = `0 above the level ${maxInFlight} of verify_window_max_in_flight`;
    refuse(given, 'verify_window_occupancy_ms_by_depth', allowed);
  }
  const expected: Partial<VerifyWindowStats> = occupancyOf(byDepth);
  for (const { isDerived, statistic, timing } of FIGURES) {
    const figure = expected[statistic];
    if (!isDerived || typeof figure !== 'number') continue;
    if (Math.abs(Number(given[timing]) - figure) > 1e-3 * Math.max(1, figure)) {
      refuse(given, timing, `${figure}, as verify_window_occupancy_ms_by_depth has it`);
    }
  }
}

/** Works out anew what follows from the time at each level, which rounding may have changed. */
function statsOf(given: ResponseTimings): VerifyWindowStats {
  const stats = Object.fromEntries(
    FIGURES.map(({ statistic, timing }) => [statistic, given[timing]]),
  ) as unknown as VerifyWindowStats;
  return { ...stats, ...occupancyOf([...given.verify_window_occupancy_ms_by_depth]) };
}

function refuse(given: GivenTimings, key: Key, allowed: string): never {
  refuseArgument(`timings.${key}`, allowed, given[key]);
}
