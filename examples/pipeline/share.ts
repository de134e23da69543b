/** A part of a whole; 0 of nothing, and NaN of what is not known. */
export function share(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}
