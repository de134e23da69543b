import type { HrTime } from '@opentelemetry/api';

/** A point in time, on both clocks. */
export interface Moment {
  /** Milliseconds since 1970. */
  readonly wallMs: number;
  /** Milliseconds of `performance.now`. */
  readonly monotonicMs: number;
}

/** The wall clock at 0 of `performance.now`, in milliseconds; not known yet at first. */
let originMs = Number.NaN;

/**
 * As far as the wall clock tells, it is this much later at most: it counts whole milliseconds. A
 * double that holds milliseconds since 1970 has no place for a fraction that is closer to 1.
 */
const ALMOST_A_MILLISECOND = 1 - 2 ** -11;

/**
 * What time it is. The SDK starts spans at whole milliseconds, which may be longer than a phase of a
 * stage takes: phases would seem to overlap, and a stage to begin before its window. The monotonic
 * clock is finer; it is kept within the millisecond that the wall clock shows, whatever becomes of
 * that, so that the spans of others in this process agree with ours.
 */
function now(): Moment {
  const wallMs = Date.now();
  const monotonicMs = performance.now();
  const ms = originMs + monotonicMs;
  if (ms >= wallMs && ms < wallMs + 1) return { wallMs: ms, monotonicMs };
  const corrected = ms >= wallMs + 1 ? wallMs + ALMOST_A_MILLISECOND : wallMs;
  originMs = corrected - monotonicMs;
  return { wallMs: corrected, monotonicMs };
}

/**
 * When a span that began at `start` ends that ends now: by the clock, or, where that was set or has
 * drifted meanwhile, as long after its start as it took. That is how the SDK ends spans.
 */
function endNow(start: Moment): number {
  const { wallMs, monotonicMs } = now();
  const byDuration = start.wallMs + Math.max(0, monotonicMs - start.monotonicMs);
  const hasDrifted = Math.abs(wallMs - byDuration) > 1;
  return hasDrifted ? byDuration : Math.max(wallMs, start.wallMs);
}

/**
 * The times of a span and of its children: none of them begins before it, or ends after it, also
 * where the wall clock is set meanwhile.
 */
export class SpanClock {
  readonly start: Moment;
  #lastEndMs: number;

  private constructor(start: Moment) {
    this.start = start;
    this.#lastEndMs = start.wallMs;
  }

  /** For a span that begins now. */
  static fromNow(): SpanClock {
    return new SpanClock(now());
  }

  /**
   * For a span that begins now below one of the SDK, and above others of it: at a whole millisecond,
   * as those begin.
   */
  static asTheSdk(): SpanClock {
    return new SpanClock({ wallMs: Date.now(), monotonicMs: performance.now() });
  }

  get startTime(): HrTime {
    return toHrTime(this.start.wallMs);
  }

  /** When a child begins that begins now. */
  startOfChild(): Moment {
    const { wallMs, monotonicMs } = now();
    return { wallMs: Math.max(wallMs, this.start.wallMs), monotonicMs };
  }

  /** When a child ends that ends now. */
  endOfChild(start: Moment): number {
    const endMs = Math.max(endNow(start), start.wallMs);
    this.include(endMs);
    return endMs;
  }

  /** Takes note that something below the span ended at this time. */
  include(endMs: number): void {
    if (endMs > this.#lastEndMs) this.#lastEndMs = endMs;
  }

  /** The end of the last child. */
  get lastEndMs(): number {
    return this.#lastEndMs;
  }

  /** When the span itself ends that ends now. */
  end(): HrTime {
    return toHrTime(Math.max(endNow(this.start), this.#lastEndMs));
  }

  /** The time of something that happens within the span now. */
  time(): HrTime {
    return toHrTime(this.endOfChild(this.start));
  }
}

/** Milliseconds since 1970 as the SDK's seconds and nanoseconds. */
export function toHrTime(ms: number): HrTime {
  // Also before 1970, as fake clocks may be, the nanoseconds count forwards.
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.trunc((ms - seconds * 1000) * 1e6)];
}
