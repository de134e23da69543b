import type { VerifyWindowErrorCode } from './error.js';
import type { VerifyWindowScheduler } from './scheduler.js';
import type { DropReason, VerifyWindow, WindowOutcome, WindowVerdict } from './verify-window.js';

/**
 * Is told what a scheduler does, synchronously and after the fact: the scheduler already shows
 * the new state. What a method throws never reaches the scheduler's caller; it goes to
 * {@link VerifyWindowObserver.failed}.
 *
 * One observer may watch any number of schedulers: each call names the one that it is about.
 */
export interface VerifyWindowObserver {
  /** A window was admitted; `scheduler.inFlight` counts it. */
  opened?(scheduler: VerifyWindowScheduler, window: VerifyWindow): void;

  /**
   * A window was retired by its reply.
   *
   * @param durationMs milliseconds from open to reply.
   * @param outcome what the caller of `completeNext` passed.
   */
  completed?(
    scheduler: VerifyWindowScheduler,
    window: VerifyWindow,
    verdict: WindowVerdict,
    durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void;

  /** A window was removed without a reply. */
  dropped?(scheduler: VerifyWindowScheduler, window: VerifyWindow, reason: DropReason): void;

  /** A recovery epoch began, and this many windows were marked stale with it. */
  recoveryEpoch?(scheduler: VerifyWindowScheduler, markedStale: number): void;

  /** A call was refused, and is about to throw. */
  refused?(scheduler: VerifyWindowScheduler, code: VerifyWindowErrorCode): void;

  /** The scheduler was closed. Only `refused` can follow. */
  closed?(scheduler: VerifyWindowScheduler): void;

  /** One of this observer's own methods threw `error`. What this method throws is dropped. */
  failed?(error: unknown): void;
}
