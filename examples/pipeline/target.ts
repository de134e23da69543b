/** The longest context that the model looks at, in tokens. */
const ORDER = 6;

/**
 * The target model: a back-off n-gram model of a text. Given what came before, it predicts what
 * most often follows the longest part of it that the text knows; of equals, what comes first in
 * the text. It is deterministic, and the only authority on the next token.
 */
export class Target {
  /** Next token by context; contexts of every length up to the order. */
  readonly #next = new Map<string, number>();
  readonly #mostCommon: number;

  constructor(text: readonly number[]) {
    const counts = new Map<string, Map<number, number>>();
    for (let end = 0; end < text.length; end++) {
      for (let length = 0; length <= Math.min(ORDER, end); length++) {
        const context = text.slice(end - length, end).join(' ');
        const following = counts.get(context) ?? new Map<number, number>();
        counts.set(context, following);
        const token = text[end] as number;
        following.set(token, (following.get(token) ?? 0) + 1);
      }
    }
    for (const [context, following] of counts) {
      // Maps keep the order of insertion, which is that of the text; the sort is stable.
      const [best] = [...following].sort(([, a], [, b]) => b - a);
      if (best !== undefined) this.#next.set(context, best[0]);
    }
    this.#mostCommon = this.#next.get('') ?? 0;
  }

  /** The token that follows `sequence`. */
  predict(sequence: readonly number[]): number {
    for (let length = Math.min(ORDER, sequence.length); length > 0; length--) {
      const next = this.#next.get(sequence.slice(-length).join(' '));
      if (next !== undefined) return next;
    }
    return this.#mostCommon;
  }
}
