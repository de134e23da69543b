import {
  ERROR_TYPE_VALUES,
  type LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUES,
  type LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUES,
  type LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUES,
  type LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUES,
} from '../../semconv/attributes.js';
import type { VerifyWindowErrorCode } from './error.js';

/** The deepest pipeline that a scheduler takes: each level is a series of its own in the metrics. */
export const MAX_DEPTH = 1024;

/** Verdict on a retired window: the values of `llama_stage.verify_window.verdict`. */
export type WindowVerdict = (typeof LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUES)[number];

/** Why a window left without a reply: the values of `llama_stage.verify_window.drop_reason`. */
export type DropReason = (typeof LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUES)[number];

/** How predictions came back: the values of `llama_stage.verify_window.direct_return_path`. */
export type DirectReturnPath = (typeof LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUES)[number];

/** The values of `llama_stage.verify_window.horizon_refill_outcome`. */
export type HorizonRefillOutcome =
  (typeof LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUES)[number];

/** What a scheduler has refused that has refused nothing: nearly every one shares this record. */
export const NO_ERRORS = Object.freeze(
  Object.fromEntries(ERROR_TYPE_VALUES.map((code) => [code, 0])),
) as Readonly<Record<VerifyWindowErrorCode, number>>;

/** Likewise for what nearly every scheduler has none of: replaced by a record of its own when needed. */
const NONE_DROPPED: Readonly<Record<DropReason, number>> = Object.freeze({ stale: 0, closed: 0 });
const NO_REFILLS: Readonly<Record<HorizonRefillOutcome, number>> = Object.freeze({
  success: 0,
  miss: 0,
});
const NO_RETURNS: Readonly<Record<DirectReturnPath, number>> = Object.freeze({
  upstream_opened: 0,
  reverse_fallback: 0,
});

/**
 * Everything that one scheduler counts: plain numbers, and no reference to anything else, so that
 * whoever holds them keeps neither the scheduler nor its clock alive.
 */
export class Counts {
  readonly depth: number;
  inFlight = 0;
  maxInFlight = 0;
  opened = 0;
  /** Windows retired by their reply. */
  readonly completed: Record<WindowVerdict, number> = {
    full_accept: 0,
    partial_accept: 0,
    reject: 0,
    stale: 0,
    unverified: 0,
  };
  /** Windows removed without a reply. */
  dropped = NONE_DROPPED;
  /** Refused calls. */
  errors = NO_ERRORS;
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
  horizonRefills = NO_REFILLS;
  horizonRefillTokens = 0;
  /** 1 for each path that was marked at any time. */
  directReturns = NO_RETURNS;
  /** The path that was marked last. */
  directReturnPath: DirectReturnPath | undefined;
  isClosed = false;
  /** Milliseconds of life up to the last transition. */
  lifetimeMs = 0;
  /** Of these, milliseconds with exactly 0, 1, … `depth` windows in flight. */
  readonly occupancyMs: number[];

  constructor(depth: number) {
    this.depth = depth;
    this.occupancyMs = new Array<number>(depth + 1).fill(0);
  }

  countError(code: VerifyWindowErrorCode): void {
    this.errors = { ...this.errors, [code]: addCount(this.errors[code], 1) };
  }

  /** Takes every window out of flight. */
  dropAll(reason: DropReason): void {
    if (this.inFlight === 0) return;
    this.dropped = { ...this.dropped, [reason]: this.dropped[reason] + this.inFlight };
    this.inFlight = 0;
  }

  countRefill(outcome: HorizonRefillOutcome): void {
    this.horizonRefills = { ...this.horizonRefills, [outcome]: this.horizonRefills[outcome] + 1 };
  }

  markReturn(path: DirectReturnPath): void {
    this.directReturnPath = path;
    this.directReturns = { ...this.directReturns, [path]: 1 };
  }
}

/** The counts at one moment, as a copy that cannot be changed. Durations are milliseconds. */
export type Tally = {
  readonly [Count in keyof Counts as Counts[Count] extends (...args: never) => unknown
    ? never
    : Count]: Readonly<Counts[Count]>;
};

/** Copies the counts, so that what is shown of them cannot change them. */
export function tallyOf(counts: Counts): Tally {
  return Object.freeze({
    ...counts,
    completed: Object.freeze({ ...counts.completed }),
    dropped: Object.freeze({ ...counts.dropped }),
    errors: Object.freeze({ ...counts.errors }),
    horizonRefills: Object.freeze({ ...counts.horizonRefills }),
    directReturns: Object.freeze({ ...counts.directReturns }),
    occupancyMs: Object.freeze([...counts.occupancyMs]),
  });
}

/** Whether `value` can be a count: an integer from 0 to `Number.MAX_SAFE_INTEGER`. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Adds counts, and saturates where doubles stop to tell integers apart. */
export function addCount(total: number, count: number): number {
  return Math.min(total + count, Number.MAX_SAFE_INTEGER);
}

/**
 * Adds a duration in milliseconds. What is no duration (negative, NaN, infinite, no number) counts
 * as 0.
 */
export function addMs(total: number, ms: number): number {
  if (typeof ms !== 'number' || !(ms > 0 && ms < Number.POSITIVE_INFINITY)) return total;
  return Math.min(total + ms, Number.MAX_VALUE);
}
