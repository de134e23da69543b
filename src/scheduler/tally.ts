import type {
  LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_REVERSE_FALLBACK,
  LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_UPSTREAM_OPENED,
} from '../../semconv/attributes.js';
import type { VerifyWindowErrorCode } from './error.js';
import type { DropReason, WindowVerdict } from './verify-window.js';

/** How predictions came back: the values of `llama_stage.verify_window.direct_return_path`. */
export type DirectReturnPath =
  | typeof LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_UPSTREAM_OPENED
  | typeof LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_REVERSE_FALLBACK;

/** What a scheduler has refused that has refused nothing. */
export const NO_ERRORS: Readonly<Record<VerifyWindowErrorCode, number>> = {
  depth_exceeded: 0,
  id_overflow: 0,
  reply_without_window: 0,
  reply_out_of_order: 0,
  invalid_argument: 0,
  closed: 0,
};

/**
 * Everything that one scheduler counts, as plain numbers. A tally holds no reference to its
 * scheduler, so that whoever reads it does not keep a forgotten scheduler alive.
 *
 * It is the scheduler's own live state: read it, do not write to it.
 */
export class Tally {
  readonly depth: number;
  inFlight = 0;
  maxInFlight = 0;
  opened = 0;
  readonly completed: Record<WindowVerdict, number> = {
    full_accept: 0,
    partial_accept: 0,
    reject: 0,
    stale: 0,
    unverified: 0,
  };
  readonly dropped: Record<DropReason, number> = { stale: 0, closed: 0 };
  /** Most schedulers refuse nothing: they share one record, and get their own with an error. */
  errors: Readonly<Record<VerifyWindowErrorCode, number>> = NO_ERRORS;
  proposedTokens = 0;
  acceptedTokens = 0;
  recoveryEpochs = 0;
  staleMarked = 0;
  staleDiscarded = 0;
  staleDrainMs = 0;
  staleStage0ComputeMs = 0;
  staleForwardWriteMs = 0;
  staleDownstreamWaitMs = 0;
  staleVerifyElapsedMs = 0;
  horizonRefillSuccesses = 0;
  horizonRefillMisses = 0;
  horizonRefillTokens = 0;
  /** Whether predictions came over a sink that the upstream opened, at any time. */
  directReturnUpstreamOpened = false;
  /** Whether predictions came over the reverse fallback, at any time. */
  directReturnReverseFallback = false;
  /** Which of the two paths was marked last. */
  directReturnPath: DirectReturnPath | undefined;
  isClosed = false;

  readonly #clock: () => number;
  #readAt: number;
  /** Milliseconds of life up to the last transition. */
  #elapsedMs = 0;
  readonly #occupancyMs: number[];

  constructor(depth: number, clock: () => number) {
    this.depth = depth;
    this.#clock = clock;
    this.#readAt = clock();
    this.#occupancyMs = new Array<number>(depth + 1).fill(0);
  }

  /**
   * Reads the clock, books the time since the last transition at the present occupancy level,
   * and returns the milliseconds of life so far.
   */
  advance(): number {
    const now = this.#clock();
    const passed = now - this.#readAt;
    // A step back, a NaN and an infinity count as no time; a NaN must not become the next base.
    if (passed > 0 && passed < Number.POSITIVE_INFINITY) {
      this.#elapsedMs += passed;
      this.#occupancyMs[this.inFlight] = (this.#occupancyMs[this.inFlight] ?? 0) + passed;
    }
    if (!Number.isNaN(now)) this.#readAt = now;
    return this.#elapsedMs;
  }

  countError(code: VerifyWindowErrorCode): void {
    this.errors = { ...this.errors, [code]: this.errors[code] + 1 };
  }

  /** Ends the life of the scheduler at this moment; windows in flight are dropped as `closed`. */
  end(): void {
    this.advance();
    this.dropped.closed += this.inFlight;
    this.inFlight = 0;
    this.isClosed = true;
  }

  /** Milliseconds since the last transition, by the scheduler's clock; 0 once it is closed. */
  pendingMs(): number {
    if (this.isClosed) return 0;
    const passed = this.#clock() - this.#readAt;
    return passed > 0 && passed < Number.POSITIVE_INFINITY ? passed : 0;
  }

  /**
   * Milliseconds spent with exactly `level` windows in flight, up to the last transition. Time
   * since then is {@link Tally.pendingMs}, and belongs to the present level.
   */
  occupancyMs(level: number): number {
    return this.#occupancyMs[level] ?? 0;
  }
}
