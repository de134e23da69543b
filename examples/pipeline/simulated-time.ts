import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { now } from './clock.js';
import type { Interval } from './intervals.js';

/**
 * Compute of one stage: one job at a time, in the order of arrival, each for the same time. The
 * time when it is next free is kept as a number, so that timers that fire late do not add up.
 */
export class Compute {
  readonly #ms: number;
  readonly #stop: AbortSignal | undefined;
  #freeAt = 0;
  #last: Promise<unknown> = Promise.resolve();

  /** @param stop ends the job that runs and those that wait, with its reason as their error. */
  constructor(ms: number, stop?: AbortSignal) {
    this.#ms = ms;
    this.#stop = stop;
  }

  /**
   * Computes a job that arrived at `arrivedAt`, once those before it are done.
   *
   * @param observe runs the computation when its turn has come.
   * @returns when it was computed.
   */
  run(
    arrivedAt: number,
    observe = (compute: () => Promise<Interval>) => compute(),
  ): Promise<Interval> {
    const job = this.#last.then(() => observe(() => this.#compute(arrivedAt)));
    this.#last = job;
    return job;
  }

  async #compute(arrivedAt: number): Promise<Interval> {
    const from = now();
    this.#freeAt = Math.max(this.#freeAt, arrivedAt) + this.#ms;
    await until(this.#freeAt, this.#stop);
    return { from, to: now() };
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
    const dueAt = now() + this.#ms;
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
async function until(due: number, stop?: AbortSignal): Promise<void> {
  for (let wait = due - now(); wait > 0; wait = due - now()) {
    stop?.throwIfAborted();
    // What it rejects with when it is stopped hides the reason, which the next turn throws.
    await (wait >= 1 ? sleep(wait, undefined, { signal: stop }).catch(() => {}) : nextTurn());
  }
}
