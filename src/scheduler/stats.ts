import { FIGURES, type Figure, type VerifyWindowStats } from '../../semconv/figures.js';
import { Counts } from './counts.js';

export type { VerifyWindowStats } from '../../semconv/figures.js';

/**
 * Takes a snapshot, and leaves the counts as they are.
 *
 * @param pendingMs time since the last transition, which belongs to the present level.
 */
export function snapshot(counts: Counts, pendingMs: number): VerifyWindowStats {
  const { directReturnPath, horizonRefills, inFlight } = counts;
  // A plain copy: the array method for one changed element is many times slower.
  const occupancyMs = [...counts.occupancyMs];
  occupancyMs[inFlight] = (occupancyMs[inFlight] ?? 0) + pendingMs;
  const stats: WritableStats = { ...NO_STATS };
  for (const name of COUNTED_NAMES) stats[name] = counts[name];
  stats.directReturnUpstreamOpened = directReturnPath === 'upstream_opened';
  stats.directReturnReverseFallback = directReturnPath === 'reverse_fallback';
  stats.horizonRefillAttempts = horizonRefills.success + horizonRefills.miss;
  stats.horizonRefillSuccesses = horizonRefills.success;
  stats.horizonRefillMisses = horizonRefills.miss;
  return Object.assign(stats, occupancyOf(occupancyMs));
}

type WritableStats = { -readonly [Name in keyof VerifyWindowStats]: VerifyWindowStats[Name] };

/** The statistics that the counts hold as they are, under the same names. */
type CountedName = keyof VerifyWindowStats & keyof Counts;

const COUNTED_NAMES: readonly CountedName[] = (() => {
  const counts = new Counts(1);
  return FIGURES.map(({ statistic }) => statistic).filter(
    (statistic): statistic is CountedName => statistic in counts,
  );
})();

/** All statistics in their order: to copy it is faster than to add them one by one. */
const NO_STATS = Object.fromEntries(
  FIGURES.map(({ statistic }) => [statistic, 0]),
) as unknown as VerifyWindowStats;

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

/** Span attributes of one generation, as `span.setAttributes` takes them. */
export type GenerationAttributes = Record<string, number | boolean | number[]>;

/** The direct-return and horizon-refill attributes: exactly six keys, of those that the statistics tell. */
export function pipelineAttributes(
  stats: Partial<VerifyWindowStats> | undefined,
): GenerationAttributes {
  return attributesOf(PIPELINE, stats);
}

/** The rest of what a generation span says of its windows. Durations are milliseconds. */
export function summaryAttributes(
  stats: Partial<VerifyWindowStats> | undefined,
): GenerationAttributes {
  return attributesOf(SUMMARY, stats);
}

const PIPELINE = FIGURES.filter(({ group }) => group === 'pipeline');
const SUMMARY = FIGURES.filter(({ group }) => group === 'summary');

function attributesOf(
  figures: readonly Figure[],
  stats: Partial<VerifyWindowStats> | undefined,
): GenerationAttributes {
  const attributes: GenerationAttributes = {};
  for (const { attribute, statistic } of figures) {
    const value = stats?.[statistic];
    if (value !== undefined) attributes[attribute] = copyOf(value);
  }
  return attributes;
}

/** A figure that shares nothing with the statistics. */
export function copyOf(
  value: VerifyWindowStats[keyof VerifyWindowStats],
): number | boolean | number[] {
  return Array.isArray(value) ? [...value] : (value as number | boolean);
}
