import type { VerifyWindowErrorCode } from './error.js';
import type { VerifyWindowObserver } from './observer.js';
import type { VerifyWindowScheduler } from './scheduler.js';
import type { DropReason, VerifyWindow, WindowOutcome, WindowVerdict } from './verify-window.js';

/**
 * Several observers as one, so that a scheduler with a single observer, which is nearly every
 * one, calls it directly.
 */
export class FanOut implements VerifyWindowObserver {
  readonly observers: readonly VerifyWindowObserver[];

  constructor(observers: readonly VerifyWindowObserver[]) {
    this.observers = observers;
  }

  opened(scheduler: VerifyWindowScheduler, window: VerifyWindow): void {
    this.#tell((observer) => observer.opened?.(scheduler, window));
  }

  completed(
    scheduler: VerifyWindowScheduler,
    window: VerifyWindow,
    verdict: WindowVerdict,
    durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void {
    this.#tell((observer) => observer.completed?.(scheduler, window, verdict, durationMs, outcome));
  }

  dropped(scheduler: VerifyWindowScheduler, window: VerifyWindow, reason: DropReason): void {
    this.#tell((observer) => observer.dropped?.(scheduler, window, reason));
  }

  recoveryEpoch(scheduler: VerifyWindowScheduler, markedStale: number): void {
    this.#tell((observer) => observer.recoveryEpoch?.(scheduler, markedStale));
  }

  refused(scheduler: VerifyWindowScheduler, code: VerifyWindowErrorCode): void {
    this.#tell((observer) => observer.refused?.(scheduler, code));
  }

  closed(scheduler: VerifyWindowScheduler): void {
    this.#tell((observer) => observer.closed?.(scheduler));
  }

  #tell(tell: (observer: VerifyWindowObserver) => void): void {
    for (const observer of this.observers) {
      try {
        tell(observer);
      } catch (error) {
        reportFailure(observer, error);
      }
    }
  }
}

/** Tells an observer that it threw; the scheduler's caller is not to hear of it. */
export function reportFailure(observer: VerifyWindowObserver, error: unknown): void {
  try {
    observer.failed?.(error);
  } catch {
    // Its last way to speak failed too.
  }
}
