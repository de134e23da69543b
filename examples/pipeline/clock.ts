/**
 * Milliseconds since the epoch, with fractions, by a clock that does not step while a process runs.
 * The processes of one machine agree about it to a few microseconds.
 */
export function now(): number {
  return performance.timeOrigin + performance.now();
}
