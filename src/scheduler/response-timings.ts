import { describe } from './describe.js';
import { VerifyWindowError } from './error.js';
import { isCount } from './quantities.js';
import { MAX_DEPTH } from './scheduler.js';
import { occupancyOf, type VerifyWindowStats } from './stats.js';

/** The verify-window keys of a response's `timings` object. Times are milliseconds. */
export interface ResponseTimings {
  verify_window_depth: number;
  /** Whether the predictions came straight from the last stage, by either path. */
  verify_window_direct_prediction_return: boolean;
  verify_window_direct_prediction_return_upstream_opened: boolean;
  verify_window_direct_prediction_return_reverse_fallback: boolean;
  verify_window_opened: number;
  verify_window_max_in_flight: number;
  verify_window_recovery_epochs: number;
  verify_window_stale_marked: number;
  verify_window_stale_discarded: number;
  verify_window_stale_drain_ms: number;
  verify_window_stale_stage0_compute_ms: number;
  verify_window_stale_forward_write_ms: number;
  verify_window_stale_downstream_wait_ms: number;
  verify_window_stale_verify_elapsed_ms: number;
  verify_window_horizon_refill_attempts: number;
  verify_window_horizon_refill_successes: number;
  verify_window_horizon_refill_tokens: number;
  verify_window_horizon_refill_misses: number;
  verify_window_occupancy_ms_by_depth: number[];
  verify_window_occupancy_total_ms: number;
  verify_window_occupancy_parallel_ms: number;
  verify_window_occupancy_parallel_fraction: number;
  verify_window_occupancy_full_ms: number;
  verify_window_occupancy_full_fraction: number;
  verify_window_occupancy_average_in_flight: number;
}

/** The entries that a response's `timings` object gets. */
export function responseTimings(stats: VerifyWindowStats): ResponseTimings {
  return {
    verify_window_depth: stats.depth,
    verify_window_direct_prediction_return:
      stats.directReturnUpstreamOpened || stats.directReturnReverseFallback,
    verify_window_direct_prediction_return_upstream_opened: stats.directReturnUpstreamOpened,
    verify_window_direct_prediction_return_reverse_fallback: stats.directReturnReverseFallback,
    verify_window_opened: stats.opened,
    verify_window_max_in_flight: stats.maxInFlight,
    verify_window_recovery_epochs: stats.recoveryEpochs,
    verify_window_stale_marked: stats.staleMarked,
    verify_window_stale_discarded: stats.staleDiscarded,
    verify_window_stale_drain_ms: stats.staleDrainMs,
    verify_window_stale_stage0_compute_ms: stats.staleStage0ComputeMs,
    verify_window_stale_forward_write_ms: stats.staleForwardWriteMs,
    verify_window_stale_downstream_wait_ms: stats.staleDownstreamWaitMs,
    verify_window_stale_verify_elapsed_ms: stats.staleVerifyElapsedMs,
    verify_window_horizon_refill_attempts: stats.horizonRefillAttempts,
    verify_window_horizon_refill_successes: stats.horizonRefillSuccesses,
    verify_window_horizon_refill_tokens: stats.horizonRefillTokens,
    verify_window_horizon_refill_misses: stats.horizonRefillMisses,
    verify_window_occupancy_ms_by_depth: [...stats.occupancyMsByDepth],
    verify_window_occupancy_total_ms: stats.occupancyTotalMs,
    verify_window_occupancy_parallel_ms: stats.occupancyParallelMs,
    verify_window_occupancy_parallel_fraction: stats.occupancyParallelFraction,
    verify_window_occupancy_full_ms: stats.occupancyFullMs,
    verify_window_occupancy_full_fraction: stats.occupancyFullFraction,
    verify_window_occupancy_average_in_flight: stats.occupancyAverageInFlight,
  };
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
    throw new VerifyWindowError(
      'invalid_argument',
      `timings must be an object, got ${describe(timings)}`,
    );
  }
  const read = new TimingsReader(timings as Record<string, unknown>);

  const depth = read.count('verify_window_depth');
  if (depth < 1 || depth > MAX_DEPTH) {
    read.fail('verify_window_depth', `an integer from 1 to ${MAX_DEPTH}`);
  }
  const opened = read.count('verify_window_opened');
  const maxInFlight = read.count('verify_window_max_in_flight');
  if (maxInFlight > Math.min(depth, opened)) {
    read.fail(
      'verify_window_max_in_flight',
      'at most verify_window_depth and verify_window_opened',
    );
  }
  if (maxInFlight === 0 && opened > 0) {
    read.fail('verify_window_max_in_flight', 'at least 1 where windows were opened');
  }

  const directReturnUpstreamOpened = read.boolean(
    'verify_window_direct_prediction_return_upstream_opened',
  );
  const directReturnReverseFallback = read.boolean(
    'verify_window_direct_prediction_return_reverse_fallback',
  );
  if (directReturnUpstreamOpened && directReturnReverseFallback) {
    read.fail(
      'verify_window_direct_prediction_return_reverse_fallback',
      'false where the upstream opened the sink',
    );
  }
  const direct = 'verify_window_direct_prediction_return';
  if (read.boolean(direct) !== (directReturnUpstreamOpened || directReturnReverseFallback)) {
    read.fail(direct, 'true exactly where one of the two paths is');
  }

  const horizonRefillAttempts = read.count('verify_window_horizon_refill_attempts');
  const horizonRefillSuccesses = read.count('verify_window_horizon_refill_successes');
  const horizonRefillTokens = read.count('verify_window_horizon_refill_tokens');
  const horizonRefillMisses = read.count('verify_window_horizon_refill_misses');
  if (horizonRefillSuccesses + horizonRefillMisses !== horizonRefillAttempts) {
    read.fail('verify_window_horizon_refill_attempts', 'the sum of successes and misses');
  }
  if (horizonRefillTokens < horizonRefillSuccesses) {
    read.fail('verify_window_horizon_refill_tokens', 'at least one for each success');
  }

  const byDepth = read.occupancy('verify_window_occupancy_ms_by_depth', depth);
  if (byDepth.some((ms, level) => level > maxInFlight && ms > 0)) {
    read.fail(
      'verify_window_occupancy_ms_by_depth',
      `0 above the level ${maxInFlight} of verify_window_max_in_flight`,
    );
  }
  const occupancy = occupancyOf(byDepth);
  read.agrees('verify_window_occupancy_total_ms', occupancy.occupancyTotalMs);
  read.agrees('verify_window_occupancy_parallel_ms', occupancy.occupancyParallelMs);
  read.agrees('verify_window_occupancy_parallel_fraction', occupancy.occupancyParallelFraction);
  read.agrees('verify_window_occupancy_full_ms', occupancy.occupancyFullMs);
  read.agrees('verify_window_occupancy_full_fraction', occupancy.occupancyFullFraction);
  read.agrees('verify_window_occupancy_average_in_flight', occupancy.occupancyAverageInFlight);

  return {
    depth,
    opened,
    maxInFlight,
    recoveryEpochs: read.count('verify_window_recovery_epochs'),
    staleMarked: read.count('verify_window_stale_marked'),
    staleDiscarded: read.count('verify_window_stale_discarded'),
    staleDrainMs: read.ms('verify_window_stale_drain_ms'),
    staleStage0ComputeMs: read.ms('verify_window_stale_stage0_compute_ms'),
    staleForwardWriteMs: read.ms('verify_window_stale_forward_write_ms'),
    staleDownstreamWaitMs: read.ms('verify_window_stale_downstream_wait_ms'),
    staleVerifyElapsedMs: read.ms('verify_window_stale_verify_elapsed_ms'),
    directReturnUpstreamOpened,
    directReturnReverseFallback,
    horizonRefillAttempts,
    horizonRefillSuccesses,
    horizonRefillTokens,
    horizonRefillMisses,
    ...occupancy,
  };
}

type Key = keyof ResponseTimings;

class TimingsReader {
  readonly #timings: Record<string, unknown>;

  constructor(timings: Record<string, unknown>) {
    this.#timings = timings;
  }

  count(key: Key): number {
    const value = this.#own(key);
    return isCount(value) ? value : this.fail(key, 'an integer from 0 to 2^53 - 1');
  }

  boolean(key: Key): boolean {
    const value = this.#own(key);
    return typeof value === 'boolean' ? value : this.fail(key, 'true or false');
  }

  ms(key: Key): number {
    const value = this.#own(key);
    return isDuration(value) ? value : this.fail(key, 'a finite number of milliseconds, 0 or more');
  }

  occupancy(key: Key, depth: number): number[] {
    const value = this.#own(key);
    if (
      !Array.isArray(value) ||
      value.length !== depth + 1 ||
      // A hole in the array reads as undefined here, and not with `every`.
      !Array.from(value).every(isDuration) ||
      // Finite entries can still add up to infinity.
      !Number.isFinite(value.reduce((total: number, ms: number) => total + ms, 0) * depth)
    ) {
      this.fail(key, `${depth + 1} finite numbers of milliseconds, 0 or more (depth + 1)`);
    }
    return [...(value as number[])];
  }

  /** That the figure at `key` is the one that follows from others. */
  agrees(key: Key, expected: number): void {
    const value = this.ms(key);
    if (Math.abs(value - expected) > 1e-3 * Math.max(1, expected)) {
      this.fail(key, `${expected}, as verify_window_occupancy_ms_by_depth has it`);
    }
  }

  fail(key: Key, allowed: string): never {
    throw new VerifyWindowError(
      'invalid_argument',
      `timings.${key} must be ${allowed}, got ${describe(this.#own(key))}`,
    );
  }

  #own(key: Key): unknown {
    return Object.hasOwn(this.#timings, key) ? this.#timings[key] : undefined;
  }
}

function isDuration(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value < Number.POSITIVE_INFINITY;
}
