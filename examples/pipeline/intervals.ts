/** A stretch of time, in milliseconds of any clock; nothing where it ends as it begins. */
export interface Interval {
  readonly from: number;
  readonly to: number;
}

/** Added-up length, each interval for itself. */
export function totalMs(intervals: readonly Interval[]): number {
  return intervals.reduce((sum, { from, to }) => sum + to - from, 0);
}

/** Intervals that cover the same time, in order, none of which touches another. */
export function union(intervals: readonly Interval[]): Interval[] {
  const merged: Interval[] = [];
  for (const { from, to } of intervals.toSorted((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last !== undefined && from <= last.to) {
      merged[merged.length - 1] = { from: last.from, to: Math.max(last.to, to) };
    } else merged.push({ from, to });
  }
  return merged;
}

/** Milliseconds in which at least two of the intervals run. */
export function overlapMs(intervals: readonly Interval[]): number {
  const edges = intervals
    .flatMap(({ from, to }) => [
      { at: from, step: 1 },
      { at: to, step: -1 },
    ])
    // Where one ends as another begins, the two do not overlap.
    .sort((a, b) => a.at - b.at || a.step - b.step);
  let running = 0;
  let since = 0;
  let overlap = 0;
  for (const { at, step } of edges) {
    if (running >= 2) overlap += at - since;
    running += step;
    since = at;
  }
  return overlap;
}

/** How much of the intervals' total falls within the time that `others` cover. */
export function coveredMs(intervals: readonly Interval[], others: readonly Interval[]): number {
  const cover = union(others);
  let next = 0;
  let covered = 0;
  for (const { from, to } of intervals.toSorted((a, b) => a.from - b.from)) {
    while (next < cover.length && (cover[next] as Interval).to <= from) next++;
    for (let at = next; at < cover.length; at++) {
      const part = cover[at] as Interval;
      if (part.from >= to) break;
      covered += Math.min(part.to, to) - Math.max(part.from, from);
    }
  }
  return covered;
}
