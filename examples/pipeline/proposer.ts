/** The longest and the shortest run of tokens that counts as a match. */
const LONGEST = 6;
const SHORTEST = 1;

/**
 * Proposes what may follow a sequence, from the sequence alone: finds the latest earlier place
 * where its last tokens stand, the longest match first, and copies what came after. Returns at
 * most `limit` tokens, and none where nothing matches.
 */
export function propose(sequence: readonly number[], limit: number): number[] {
  for (let length = LONGEST; length >= SHORTEST; length--) {
    const suffixStart = sequence.length - length;
    for (let start = suffixStart - 1; start >= 0; start--) {
      if (matches(sequence, start, suffixStart, length)) {
        return sequence.slice(start + length, start + length + limit);
      }
    }
  }
  return [];
}

function matches(sequence: readonly number[], a: number, b: number, length: number): boolean {
  for (let i = 0; i < length; i++) {
    if (sequence[a + i] !== sequence[b + i]) return false;
  }
  return true;
}
