import type { DataPoint, Histogram, ResourceMetrics } from '@opentelemetry/sdk-metrics';
import * as semconv from 'llama-stage-otel/semconv';
import { measureHiding, measureOverlap } from './overlap.js';
import { percentile } from './percentile.js';
import type { RunResult } from './run.js';
import { share } from './share.js';

/** The attribute that tells the two runs apart. */
export const RUN_ATTRIBUTE = 'pipeline.run';

export type RunName = 'control' | 'pipelined';

/** What one run measured, by the number of the question in which it is asked. */
export type Measurements = ReturnType<typeof measure>;

/**
 * Sums up one run. Whatever a metric holds is read from the collected metrics; rates, token
 * latencies and the comparison of outputs come from the outputs themselves, and what happened at
 * the same time from the journeys of the windows. Without metrics, what they hold is NaN.
 */
export function measure(
  run: RunName,
  collected: ResourceMetrics | undefined,
  { outputs, elapsedMs, timeline }: RunResult,
) {
  const metrics = new RunMetrics(run, collected);
  const tokens = outputs.reduce((sum, output) => sum + output.tokens.length, 0);
  const interTokenMs = outputs.flatMap((output) => output.interTokenMs);
  const opened = metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED);
  const levels = metrics.levels();
  const lifetime =
    collected === undefined ? Number.NaN : levels.reduce((sum, seconds) => sum + seconds, 0);
  const windowSeconds = metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME);
  const proposed = metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS);
  const accepted = metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS);
  const discarded = metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_DISCARDED);
  const verdicts = (value: string) =>
    metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, [
      semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
      value,
    ]);
  const refills = (value: string) =>
    metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS, [
      semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME,
      value,
    ]);
  const duration = metrics.histogram(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION);
  const length = metrics.histogram(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH);
  return {
    q1: { tokens, seconds: elapsedMs / 1000, tokensPerSecond: tokens / (elapsedMs / 1000) },
    q2: {
      timeToFirstTokenMsP50: percentile(
        outputs.map((output) => output.timeToFirstTokenMs),
        0.5,
      ),
      timeToFirstTokenMsP95: percentile(
        outputs.map((output) => output.timeToFirstTokenMs),
        0.95,
      ),
      interTokenMsMean: share(
        interTokenMs.reduce((sum, ms) => sum + ms, 0),
        interTokenMs.length,
      ),
      interTokenMsP50: percentile(interTokenMs, 0.5),
      interTokenMsP95: percentile(interTokenMs, 0.95),
      windowMsMean: share(duration.sum, duration.count) * 1000,
    },
    q3: {
      opened,
      timeShareByLevel: levels.map((seconds) => share(seconds, lifetime)),
      averageInFlight: share(windowSeconds, lifetime),
      parallelFraction: share(
        metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME),
        lifetime,
      ),
      fullFraction: share(
        metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME),
        lifetime,
      ),
    },
    q4: measureOverlap(timeline, elapsedMs),
    q5: measureHiding(timeline),
    q6: {
      recoveryEpochs: metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS),
      staleMarked: metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED),
      staleDiscarded: discarded,
      staleFraction: share(discarded, opened),
      staleDrainSeconds: metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_DRAIN_TIME),
      staleStage0ComputeSeconds: metrics.sum(
        semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_STAGE0_COMPUTE_TIME,
      ),
      staleForwardWriteSeconds: metrics.sum(
        semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_FORWARD_WRITE_TIME,
      ),
      staleDownstreamWaitSeconds: metrics.sum(
        semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_DOWNSTREAM_WAIT_TIME,
      ),
      staleVerifySeconds: metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_STALE_VERIFY_TIME),
    },
    q7: {
      proposedTokens: proposed,
      acceptedTokens: accepted,
      acceptanceRate: share(accepted, proposed),
      fullAcceptWindows: verdicts(semconv.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT),
      partialAcceptWindows: verdicts(
        semconv.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT,
      ),
      rejectWindows: verdicts(semconv.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT),
      unverifiedWindows: verdicts(semconv.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED),
      meanAcceptedLength: share(length.sum, length.count),
      /** Share of the windows of which at least 1, 2, … candidates were accepted. */
      shareAcceptedAtLeast: survival(length),
    },
    q8: {
      refillSuccesses: refills(
        semconv.LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_SUCCESS,
      ),
      refillMisses: refills(semconv.LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_MISS),
      refillTokens: metrics.sum(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_TOKENS),
    },
  };
}

/** The collected metrics of one run. */
class RunMetrics {
  readonly #run: RunName;
  readonly #collected: ResourceMetrics | undefined;

  constructor(run: RunName, collected: ResourceMetrics | undefined) {
    this.#run = run;
    this.#collected = collected;
  }

  sum(name: string, attribute?: readonly [key: string, value: string]): number {
    if (this.#collected === undefined) return Number.NaN;
    return this.#points(name)
      .filter((point) => attribute === undefined || point.attributes[attribute[0]] === attribute[1])
      .reduce((sum, point) => sum + (point.value as number), 0);
  }

  /** The one point that a histogram without attributes of its own has. */
  histogram(name: string): Distribution {
    const value = this.#points(name)[0]?.value as Histogram | undefined;
    const none = this.#collected === undefined ? Number.NaN : 0;
    if (value === undefined) return { sum: none, count: none, boundaries: [], counts: [] };
    const { boundaries, counts } = value.buckets;
    return { sum: value.sum ?? 0, count: value.count, boundaries, counts };
  }

  /** Seconds at each occupancy level. */
  levels(): number[] {
    const seconds: number[] = [];
    for (const point of this.#points(semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME)) {
      const level = point.attributes[semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL];
      seconds[Number(level)] = point.value as number;
    }
    return seconds;
  }

  #points(name: string): DataPoint<number | Histogram>[] {
    return (this.#collected?.scopeMetrics ?? [])
      .flatMap((scope) => scope.metrics)
      .filter((metric) => metric.descriptor.name === name)
      .flatMap((metric) => metric.dataPoints as DataPoint<number | Histogram>[])
      .filter((point) => point.attributes[RUN_ATTRIBUTE] === this.#run);
  }
}

interface Distribution {
  readonly sum: number;
  readonly count: number;
  readonly boundaries: readonly number[];
  readonly counts: readonly number[];
}

/**
 * Share of the values that are at least 1, 2, …, up to the largest one or to where the buckets
 * become wider than one: a whole number is at least n if it is above the boundary n - 1.
 */
function survival({ boundaries, counts, count }: Distribution): number[] {
  const shares: number[] = [];
  let above = count;
  for (const [index, boundary] of boundaries.entries()) {
    above -= counts[index] ?? 0;
    if (boundary !== index || above <= 0) break;
    shares.push(above / count);
  }
  return shares;
}
