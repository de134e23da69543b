import type { Begin, End, Predictions, Window } from './messages.js';
import type { Target } from './target.js';

/** What the last stage alone has: the target's head, and each generation's sequence so far. */
export class LastStage {
  readonly #target: Target;
  readonly #sequences = new Map<number, number[]>();

  constructor(target: Target) {
    this.#target = target;
  }

  /** The predictions that a window asks for. */
  handle(message: Begin | Window | End): Predictions | undefined {
    const { generation } = message;
    switch (message.type) {
      case 'begin':
        if (this.#sequences.has(generation)) throw new Error('a generation that runs begins again');
        this.#sequences.set(generation, [...message.prompt]);
        return undefined;
      case 'end':
        this.#sequences.delete(generation);
        return undefined;
      case 'window': {
        const sequence = this.#sequences.get(generation);
        if (sequence === undefined || message.basePosition > sequence.length) {
          throw new Error('a window does not join the sequence that the last stage has');
        }
        // A new epoch starts further back than the stale one reached.
        sequence.length = message.basePosition;
        const predictions = message.tokens.map((token) => {
          sequence.push(token);
          return this.#target.predict(sequence);
        });
        return { type: 'predictions', generation, windowId: message.windowId, predictions };
      }
    }
  }
}
