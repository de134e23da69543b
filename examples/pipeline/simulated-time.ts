import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';

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
   * Computes a job that arrived at `arrivedAt`, once those before it are done; to be called when
   * its turn has come.
   *
   * @returns milliseconds of compute as measured, without the wait for its turn.
   */
  async run(arrivedAt: number): Promise<number> {
    const startedAt = performance.now();
    this.#freeAt = Math.max(this.#freeAt, arrivedAt) + this.#ms;
    await until(this.#freeAt);
    return performance.now() - startedAt;
  }
}

/** A link with a delay: what goes in comes out in the same order, later by the same time. */
export class DelayLine<Message> {
  readonly #ms: number;
  readonly #deliver: (message: Message, dueAt: number) => void;
  #last: Promise<void> = Promise.resolve();

  /**
   * @param deliver gets each message, and when it was due: a timer that fires late should not
   * make whatever follows late as well.
   */
  constructor(ms: number, deliver: (message: Message, dueAt: number) => void) {
    this.#ms = ms;
    this.#deliver = deliver;
  }

  push(message: Message): void {
    const dueAt = performance.now() + this.#ms;
    this.#last = this.#last.then(async () => {
      await until(dueAt);
      this.#deliver(message, dueAt);
    });
  }
}

/**
 * Returns neither early nor a whole millisecond late: timers know no fractions of one, so the last
 * fraction is spent on turns of the event loop.
 */
async function until(due: number): Promise<void> {
  for (let wait = due - performance.now(); wait > 0; wait = due - performance.now()) {
    await (wait >= 1 ? sleep(wait) : nextTurn());
  }
}
