import type { ForwardMessage, Predictions } from './messages.js';
import { Target } from './target.js';
import { readText } from './text.js';

/** What the last stage alone has: the target's head, and each generation's sequence so far. */
export class LastStage {
  readonly #target = new Target(readText());
  readonly #sequences = new Map<number, number[]>();

  /** The predictions that a window asks for. */
  handle(message: ForwardMessage): Predictions | undefined {
    const { generation } = message;
    switch (message.type) {
      case 'begin':
        this.#sequences.set(generation, [...message.prompt]);
        return undefined;
      case 'end':
        this.#sequences.delete(generation);
        return undefined;
      case 'window': {
        const sequence = this.#sequences.get(generation) ?? [];
        // A new epoch starts further back than the stale one reached.
        sequence.length = Math.min(sequence.length, message.basePosition);
        const predictions = message.tokens.map((token) => {
          sequence.push(token);
          return this.#target.predict(sequence);
        });
        return { type: 'predictions', generation, windowId: message.windowId, predictions };
      }
    }
  }
}
