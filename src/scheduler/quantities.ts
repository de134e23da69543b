/** Whether `value` can be a count: an integer from 0 to `Number.MAX_SAFE_INTEGER`. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Adds counts, and saturates where doubles stop to tell integers apart. */
export function addCount(total: number, count: number): number {
  return Math.min(total + count, Number.MAX_SAFE_INTEGER);
}

/** Adds a duration in milliseconds. What is no duration (negative, NaN, infinite, no number) counts as 0. */
export function addMs(total: number, ms: number): number {
  if (typeof ms !== 'number' || !(ms > 0 && ms < Number.POSITIVE_INFINITY)) return total;
  return Math.min(total + ms, Number.MAX_VALUE);
}
