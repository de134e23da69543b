import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Compute of one stage: one job at a time, in the order of arrival, each for the same time. The
 * time when it is next free is kept as a number, so that timers that fire late do not add up.
 */
export class Compute {
  readonly #ms: number;
  #freeAt = 0;

  constructor(ms: number) {
    this.#ms = ms;
  }

  /**
   * Computes a job that arrived at `arrivedAt`, once those before it are done.
   *
   * @returns milliseconds of compute, without the wait for its turn.
   */
  async run(arrivedAt: number): Promise<number> {
    this.#freeAt = Math.max(this.#freeAt, arrivedAt) + this.#ms;
    await until(this.#freeAt);
    return this.#ms;
  }
}

/** A link with a delay: what goes in comes out in the same order, later by the same time. */
export class DelayLine<Message> {
  readonly #ms: number;
  readonly #deliver: (message: Message) => void;
  #last: Promise<void> = Promise.resolve();

  constructor(ms: number, deliver: (message: Message) => void) {
    this.#ms = ms;
    this.#deliver = deliver;
  }

  push(message: Message): void {
    const due = performance.now() + this.#ms;
    this.#last = this.#last.then(async () => {
      await until(due);
      this.#deliver(message);
    });
  }
}

async function until(due: number): Promise<void> {
  const wait = due - performance.now();
  if (wait > 0) await sleep(wait);
}
