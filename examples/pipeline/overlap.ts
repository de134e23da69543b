import { coveredMs, overlapMs, totalMs, union } from './intervals.js';
import { share } from './share.js';
import type { Timeline } from './timeline.js';

/** Whether the stages were busy at the same time (question 4). */
export function measureOverlap({ computes }: Timeline, elapsedMs: number) {
  const busyMs = totalMs(union(computes));
  // A stage computes one window at a time, so two that overlap belong to two stages.
  const overlap = overlapMs(computes);
  return {
    busySeconds: busyMs / 1000,
    overlapSeconds: overlap / 1000,
    overlapFraction: share(overlap, busyMs),
    meanStagesComputing: share(totalMs(computes), elapsedMs),
  };
}

/** Whether the delay of the links was hidden (question 5). */
export function measureHiding({ computes, links }: Timeline) {
  const linkMs = totalMs(links);
  const hiddenMs = coveredMs(links, computes);
  return {
    linkSeconds: linkMs / 1000,
    hiddenSeconds: hiddenMs / 1000,
    exposedSeconds: (linkMs - hiddenMs) / 1000,
    hiddenFraction: share(hiddenMs, linkMs),
  };
}
