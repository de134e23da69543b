import type { HrTime } from '@opentelemetry/api';

/** How far, in milliseconds, the two clocks may drift apart before they are put right. */
const MAX_DRIFT_MS = 1;

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
    // The process may be held up between two readings, so these bound the origin from both sides.
    const before = performance.now();
    const wallMs = Date.now();
    const earliest = wallMs - performance.now();
    const latest = wallMs + 1 - before;
    if (originMs < earliest - MAX_DRIFT_MS || originMs > latest + MAX_DRIFT_MS) {
      originMs = (earliest + latest) / 2;
    }
    this.#originMs = originMs;
  }

  now(): HrTime {
    const ms = this.#originMs + performance.now();
    const seconds = Math.trunc(ms / 1000);
    return [seconds, Math.trunc((ms - seconds * 1000) * 1e6)];
  }
}
