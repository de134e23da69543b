import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  coveredMs,
  type Interval,
  overlapMs,
  totalMs,
  union,
} from '../../examples/pipeline/intervals.js';

const END = 40;

/** Whole numbers, so that the same can be counted one millisecond at a time. */
const intervals = fc.array(
  fc
    .tuple(fc.nat(END), fc.nat(END))
    .map(([a, b]): Interval => ({ from: Math.min(a, b), to: Math.max(a, b) })),
  { maxLength: 12 },
);

/** How many of the intervals run in each millisecond. */
function countsOf(given: readonly Interval[]): number[] {
  return Array.from(
    { length: END },
    (_, ms) => given.filter(({ from, to }) => from <= ms && ms < to).length,
  );
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

test('the total is the sum of what runs in each millisecond', () => {
  fc.assert(
    fc.property(intervals, (given) => {
      expect(totalMs(given)).toBe(sum(countsOf(given)));
    }),
  );
});

describe('the union', () => {
  test('covers each millisecond that some interval covers, once', () => {
    fc.assert(
      fc.property(intervals, (given) => {
        expect(countsOf(union(given))).toEqual(countsOf(given).map((count) => Math.min(count, 1)));
      }),
    );
  });

  test('is in order, and has gaps between its parts', () => {
    fc.assert(
      fc.property(intervals, (given) => {
        const parts = union(given);
        for (const [index, part] of parts.slice(1).entries()) {
          expect(part.from).toBeGreaterThan((parts[index] as Interval).to);
        }
        expect(union(parts)).toEqual(parts);
      }),
    );
  });
});

test('the overlap is the time in which two or more run', () => {
  fc.assert(
    fc.property(intervals, (given) => {
      expect(overlapMs(given)).toBe(countsOf(given).filter((count) => count >= 2).length);
    }),
  );
});

describe('the covered time', () => {
  test('counts each interval for itself, where another kind covers it', () => {
    fc.assert(
      fc.property(intervals, intervals, (given, others) => {
        const cover = countsOf(others);
        const counted = countsOf(given).map((count, ms) => ((cover[ms] ?? 0) > 0 ? count : 0));
        expect(coveredMs(given, others)).toBe(sum(counted));
      }),
    );
  });

  test('is all of it below itself, and nothing below nothing', () => {
    fc.assert(
      fc.property(intervals, (given) => {
        expect(coveredMs(given, given)).toBe(totalMs(given));
        expect(coveredMs(given, [])).toBe(0);
      }),
    );
  });
});
