import type { Tally } from './tally.js';

/**
 * A snapshot of one generation's verify windows: plain data, one field for each response timing.
 * All times are milliseconds. Fractions and averages are 0 where no time went by.
 */
export interface VerifyWindowStats {
  /** The most windows that may be in flight. */
  readonly depth: number;
  readonly opened: number;
  readonly maxInFlight: number;
  readonly recoveryEpochs: number;
  readonly staleMarked: number;
  readonly staleDiscarded: number;
  readonly staleDrainMs: number;
  readonly staleStage0ComputeMs: number;
  readonly staleForwardWriteMs: number;
  readonly staleDownstreamWaitMs: number;
  readonly staleVerifyElapsedMs: number;
  /** Whether the predictions came, at last, over the sink that the upstream opened. */
  readonly directReturnUpstreamOpened: boolean;
  /** Whether the predictions came, at last, over the fallback that the last stage opened. */
  readonly directReturnReverseFallback: boolean;
  readonly horizonRefillAttempts: number;
  readonly horizonRefillSuccesses: number;
  readonly horizonRefillTokens: number;
  readonly horizonRefillMisses: number;
  /** Time with exactly 0, 1, … `depth` windows in flight: `depth + 1` entries. */
  readonly occupancyMsByDepth: readonly number[];
  /** Lifetime of the scheduler: the sum of `occupancyMsByDepth`. */
  readonly occupancyTotalMs: number;
  /** Time with two or more windows in flight. */
  readonly occupancyParallelMs: number;
  readonly occupancyParallelFraction: number;
  /** Time with exactly `depth` windows in flight. */
  readonly occupancyFullMs: number;
  readonly occupancyFullFraction: number;
  /** Time-weighted mean of the windows in flight. */
  readonly occupancyAverageInFlight: number;
}

/** Takes a snapshot at this moment, and leaves the tally as it is. */
export function snapshot(tally: Tally): VerifyWindowStats {
  const occupancyMsByDepth = Array.from({ length: tally.depth + 1 }, (_, level) =>
    tally.occupancyMs(level),
  );
  occupancyMsByDepth[tally.inFlight] = tally.occupancyMs(tally.inFlight) + tally.pendingMs();
  return {
    depth: tally.depth,
    opened: tally.opened,
    maxInFlight: tally.maxInFlight,
    recoveryEpochs: tally.recoveryEpochs,
    staleMarked: tally.staleMarked,
    staleDiscarded: tally.staleDiscarded,
    staleDrainMs: tally.staleDrainMs,
    staleStage0ComputeMs: tally.staleStage0ComputeMs,
    staleForwardWriteMs: tally.staleForwardWriteMs,
    staleDownstreamWaitMs: tally.staleDownstreamWaitMs,
    staleVerifyElapsedMs: tally.staleVerifyElapsedMs,
    directReturnUpstreamOpened: tally.directReturnPath === 'upstream_opened',
    directReturnReverseFallback: tally.directReturnPath === 'reverse_fallback',
    horizonRefillAttempts: tally.horizonRefillSuccesses + tally.horizonRefillMisses,
    horizonRefillSuccesses: tally.horizonRefillSuccesses,
    horizonRefillTokens: tally.horizonRefillTokens,
    horizonRefillMisses: tally.horizonRefillMisses,
    ...occupancyOf(occupancyMsByDepth),
  };
}

/** The figures that follow from the time at each occupancy level. */
export function occupancyOf(occupancyMsByDepth: readonly number[]) {
  const depth = occupancyMsByDepth.length - 1;
  let totalMs = 0;
  let parallelMs = 0;
  let windowMs = 0;
  occupancyMsByDepth.forEach((ms, level) => {
    totalMs += ms;
    windowMs += level * ms;
    if (level >= 2) parallelMs += ms;
  });
  const fullMs = occupancyMsByDepth[depth] ?? 0;
  return {
    occupancyMsByDepth,
    occupancyTotalMs: totalMs,
    occupancyParallelMs: parallelMs,
    occupancyParallelFraction: totalMs > 0 ? parallelMs / totalMs : 0,
    occupancyFullMs: fullMs,
    occupancyFullFraction: totalMs > 0 ? fullMs / totalMs : 0,
    occupancyAverageInFlight: totalMs > 0 ? windowMs / totalMs : 0,
  };
}
