/** A part of a whole; 0 of nothing. */
export function share(part: number, whole: number): number {
  return whole > 0 ? part / whole : 0;
}
