import { expect, test } from 'vitest';
import { measureHiding, measureOverlap } from '../../examples/pipeline/overlap.js';
import { Timeline } from '../../examples/pipeline/timeline.js';

/** A window that two stages compute for 4 ms each, with 6 ms on each link. */
function addWindow(timeline: Timeline, start: number): void {
  timeline.add(
    [
      { arrivedAt: start, compute: { from: start, to: start + 4 }, sentAt: start + 4 },
      {
        arrivedAt: start + 10,
        compute: { from: start + 10, to: start + 14 },
        sentAt: start + 14,
      },
    ],
    start + 20,
  );
}

test('a window by itself overlaps with nothing, and hides no delay', () => {
  const timeline = new Timeline();
  addWindow(timeline, 0);
  expect(measureOverlap(timeline, 20)).toEqual({
    busySeconds: 0.008,
    overlapSeconds: 0,
    overlapFraction: 0,
    meanStagesComputing: 0.4,
  });
  expect(measureHiding(timeline)).toEqual({
    linkSeconds: 0.012,
    hiddenSeconds: 0,
    exposedSeconds: 0.012,
    hiddenFraction: 0,
  });
});

test('a second window computes in the time of the first, and hides its links', () => {
  const timeline = new Timeline();
  addWindow(timeline, 0);
  addWindow(timeline, 8);
  // Compute at 0-4, 8-14 and 18-22, of which 10-12 twice; links at 4-10, 14-20, 12-18 and 22-28.
  expect(measureOverlap(timeline, 28)).toEqual({
    busySeconds: 0.014,
    overlapSeconds: 0.002,
    overlapFraction: 2 / 14,
    meanStagesComputing: 16 / 28,
  });
  expect(measureHiding(timeline)).toEqual({
    linkSeconds: 0.024,
    hiddenSeconds: 0.006,
    exposedSeconds: 0.018,
    hiddenFraction: 6 / 24,
  });
});

test('a run without a window has figures, too', () => {
  const nothing = new Timeline();
  expect(measureOverlap(nothing, 0).overlapFraction).toBe(0);
  expect(measureHiding(nothing).hiddenFraction).toBe(0);
});
