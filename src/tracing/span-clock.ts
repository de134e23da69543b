import type { HrTime } from '@opentelemetry/api';

/** More, in milliseconds, than `Date.now` is off by cutting off what is below one. */
const MAX_DRIFT_MS = 2;

/** The wall clock at 0 of `performance.now`, in milliseconds. */
let originMs = performance.timeOrigin;

/**
 * The time for starts and ends of spans that belong together. By itself the SDK starts spans at
 * whole milliseconds, which may be longer than a phase of a stage takes: phases would seem to
 * overlap, and children to begin before their parents. The monotonic clock is finer. Where the wall
 * clock was set, or has drifted from it, new clocks are put right; one that is in use runs on, so
 * that no span ends before it starts.
 */
export class SpanClock {
  readonly #originMs: number;

  constructor() {
    const driftMs = Date.now() - performance.now() - originMs;
    if (Math.abs(driftMs) > MAX_DRIFT_MS) originMs += driftMs;
    this.#originMs = originMs;
  }

  now(): HrTime {
    const ms = this.#originMs + performance.now();
    const seconds = Math.trunc(ms / 1000);
    return [seconds, Math.trunc((ms - seconds * 1000) * 1e6)];
  }
}
