import {
  FIGURES,
  type Figure,
  type FigureKind,
  type ResponseTimings,
} from '../../semconv/figures.js';
import { isCount, MAX_DEPTH } from './counts.js';
import { refuseArgument } from './error.js';
import { copyOf, occupancyOf, type VerifyWindowStats } from './stats.js';

export type { ResponseTimings } from '../../semconv/figures.js';

type Key = keyof ResponseTimings;

type GivenTimings = Partial<Record<Key, unknown>>;

/** What later versions of the workers brought: all figures of a group are there, or none is. */
type LaterGroup = NonNullable<Figure['introducedWith']>;

/** Statistics of which an earlier version of the workers may not have told all: nothing is made up. */
export type ReportedStats = Omit<VerifyWindowStats, LaterStatistic> &
  Partial<Pick<VerifyWindowStats, LaterStatistic>>;

type LaterStatistic =
  | 'directReturnUpstreamOpened'
  | 'directReturnReverseFallback'
  | 'horizonRefillAttempts'
  | 'horizonRefillSuccesses'
  | 'horizonRefillMisses'
  | 'horizonRefillTokens';

interface Expected {
  readonly key: Key;
  readonly kind: FigureKind;
  readonly introducedWith: LaterGroup | undefined;
}

/** Every timing. The flag that two others are part of is older than they are. */
const EXPECTED: readonly Expected[] = FIGURES.flatMap(
  ({ introducedWith, kind, partOf, timing: key }, index) => {
    const isFirstPart = FIGURES.findIndex((other) => other.partOf === partOf) === index;
    const whole =
      partOf !== undefined && isFirstPart ? [{ key: partOf, kind, introducedWith: undefined }] : [];
    return [...whole, { key, kind, introducedWith }];
  },
);

/** The entries that a response's `timings` object gets. What the statistics do not tell is left out. */
export function responseTimings(stats: VerifyWindowStats): ResponseTimings;
export function responseTimings(stats: ReportedStats): Partial<ResponseTimings>;
export function responseTimings(stats: ReportedStats): Partial<ResponseTimings> {
  const timings: GivenTimings = {};
  for (const { partOf, statistic, timing } of FIGURES) {
    const value = requireStats(stats)[statistic];
    if (value === undefined) continue;
    if (partOf !== undefined) timings[partOf] ||= value;
    timings[timing] = copyOf(value);
  }
  return timings as Partial<ResponseTimings>;
}

function requireStats(stats: ReportedStats): ReportedStats {
  if (typeof stats !== 'object' || stats === null) refuseArgument('stats', 'an object', stats);
  return stats;
}

/**
 * Reads the verify-window keys of a `timings` object as it came off the wire, from a worker in
 * any language. Other keys are ignored. Nothing is taken on trust: figures that follow from others
 * must agree with them to one part in a thousand, which leaves room for rounding on the way, and
 * are then worked out anew.
 *
 * @returns `undefined` where none of the keys is there, as in the timings of another server. What an
 * earlier version of the workers does not report is absent: the paths of the direct return, the
 * horizon refills.
 * @throws {VerifyWindowError} `invalid_argument`, with the key that is missing or wrong, what it
 * holds and what is allowed.
 */
export function parseResponseTimings(timings: unknown): ReportedStats | undefined {
  if (typeof timings !== 'object' || timings === null) return undefined;
  const given = readTimings(ownTimings(timings as Record<string, unknown>));
  if (given === undefined) return undefined;
  checkWindows(given);
  checkDirectReturn(given);
  checkHorizonRefills(given);
  checkOccupancy(given);
  return statsOf(given);
}

/** Timings of which each that is there is of its kind; whether they go together is still open. */
type CheckedTimings = Partial<ResponseTimings> & Pick<ResponseTimings, EarlyKey>;

type EarlyKey = Exclude<
  Key,
  | 'verify_window_direct_prediction_return'
  | 'verify_window_direct_prediction_return_upstream_opened'
  | 'verify_window_direct_prediction_return_reverse_fallback'
  | `verify_window_horizon_refill_${string}`
>;

/** A copy of what is there: nothing of what throws when it is read, which did not come off a wire. */
function ownTimings(timings: Record<string, unknown>): GivenTimings {
  const given: GivenTimings = {};
  try {
    if (Array.isArray(timings)) return {};
    for (const { key } of EXPECTED) {
      if (!Object.hasOwn(timings, key)) continue;
      const value = timings[key];
      // One that is too long is refused for that.
      const isList = Array.isArray(value) && value.length <= MAX_DEPTH + 1;
      given[key] = isList ? [...value] : value;
    }
    return given;
  } catch {
    return {};
  }
}

function readTimings(given: GivenTimings): CheckedTimings | undefined {
  if (Object.keys(given).length === 0) return undefined;
  const reported = new Set(
    EXPECTED.filter(({ key }) => key in given).map(({ introducedWith }) => introducedWith),
  );
  const allowed = allowedAt(depthOf(given));
  for (const { introducedWith, key, kind } of EXPECTED) {
    if (introducedWith !== undefined && !reported.has(introducedWith)) continue;
    const isOptional = key === WHOLE_RETURN && !reported.has('direct_return') && !(key in given);
    if (!isOptional && !allowed[kind].includes(given[key])) refuse(given, key, allowed[kind].text);
  }
  return given as CheckedTimings;
}

/** Whether predictions came back by either path. */
const WHOLE_RETURN = 'verify_window_direct_prediction_return';

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
  text: 'a number of milliseconds from 0 to 2^53 - 1',
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
      text: `${depth + 1} numbers of milliseconds (depth + 1), from 0 to 2^53 - 1 all together`,
      includes: (value) => Array.isArray(value) && isOccupancy(value, depth),
    },
  };
}

function isQuantity(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER;
}

function isOccupancy(values: readonly unknown[], depth: number): boolean {
  if (values.length !== depth + 1) return false;
  // A hole in an array becomes undefined in its copy, and is passed over by `every`.
  const times = [...values];
  return times.every(isQuantity) && isQuantity(times.reduce((total, ms) => total + ms, 0));
}

function checkWindows(given: CheckedTimings): void {
  const { verify_window_max_in_flight: maxInFlight, verify_window_opened: opened } = given;
  if (maxInFlight > Math.min(given.verify_window_depth, opened)) {
    const allowed = 'at most verify_window_depth and verify_window_opened';
    refuse(given, 'verify_window_max_in_flight', allowed);
  }
  if (maxInFlight === 0 && opened > 0) {
    refuse(given, 'verify_window_max_in_flight', 'at least 1 where windows were opened');
  }
}

function checkDirectReturn(given: CheckedTimings): void {
  const isUpstreamOpened = given.verify_window_direct_prediction_return_upstream_opened;
  const isReverseFallback = given.verify_window_direct_prediction_return_reverse_fallback;
  if (isUpstreamOpened === undefined || isReverseFallback === undefined) return;
  if (isUpstreamOpened && isReverseFallback) {
    const key = 'verify_window_direct_prediction_return_reverse_fallback';
    refuse(given, key, 'false where the upstream opened the sink');
  }
  if (given.verify_window_direct_prediction_return !== (isUpstreamOpened || isReverseFallback)) {
    refuse(given, WHOLE_RETURN, 'true exactly where one of the two paths is');
  }
}

function checkHorizonRefills(given: CheckedTimings): void {
  const {
    verify_window_horizon_refill_misses: misses,
    verify_window_horizon_refill_successes: successes,
    verify_window_horizon_refill_tokens: tokens,
  } = given;
  if (successes === undefined || misses === undefined || tokens === undefined) return;
  if (given.verify_window_horizon_refill_attempts !== successes + misses) {
    refuse(given, 'verify_window_horizon_refill_attempts', 'the sum of successes and misses');
  }
  if (tokens < successes) {
    refuse(given, 'verify_window_horizon_refill_tokens', 'at least one for each success');
  }
}

function checkOccupancy(given: CheckedTimings): void {
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
function statsOf(given: CheckedTimings): ReportedStats {
  const stats = Object.fromEntries(
    FIGURES.filter(({ timing }) => timing in given).map(({ statistic, timing }) => [
      statistic,
      given[timing],
    ]),
  ) as unknown as ReportedStats;
  return { ...stats, ...occupancyOf([...given.verify_window_occupancy_ms_by_depth]) };
}

function refuse(given: GivenTimings, key: Key, allowed: string): never {
  refuseArgument(`timings.${key}`, allowed, given[key]);
}
