import type { DropReason, WindowVerdict } from './counts.js';
import type { VerifyWindowErrorCode } from './error.js';
import type { VerifyWindow, WindowOutcome } from './verify-window.js';

/**
 * Is told what a scheduler does, synchronously and after the fact: the scheduler already shows
 * the new state. What a method throws never reaches the scheduler's caller; it goes to
 * {@link SchedulerObserver.failed}.
 *
 * One observer may watch any number of schedulers: each call names the one that it is about. An
 * observer may call the scheduler; the other observers hear of that after what they are being told.
 */
export interface SchedulerObserver<Scheduler> {
  /** A window was admitted; `scheduler.inFlight` counts it. */
  opened?(scheduler: Scheduler, window: VerifyWindow): void;

  /**
   * A window was retired by its reply.
   *
   * @param durationMs milliseconds from open to reply.
   * @param outcome what the caller of `completeNext` passed.
   */
  completed?(
    scheduler: Scheduler,
    window: VerifyWindow,
    verdict: WindowVerdict,
    durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void;

  /** A window was removed without a reply. */
  dropped?(scheduler: Scheduler, window: VerifyWindow, reason: DropReason): void;

  /** A recovery epoch began, and this many windows were marked stale with it. */
  recoveryEpoch?(scheduler: Scheduler, markedStale: number): void;

  /** A call was refused, and is about to throw. */
  refused?(scheduler: Scheduler, code: VerifyWindowErrorCode): void;

  /** The scheduler was closed. Only `refused` can follow. */
  closed?(scheduler: Scheduler): void;

  /** One of this observer's own methods threw `error`. What this method throws is dropped. */
  failed?(error: unknown): void;
}

/**
 * Several observers as one, so that a scheduler with a single observer, which is nearly every
 * one, calls it directly. All of them hear of everything in the order in which it happened.
 */
export class FanOut<Scheduler> implements SchedulerObserver<Scheduler> {
  /** Replaced and never changed, so that whoever is being told keeps the list of the moment. */
  observers: readonly SchedulerObserver<Scheduler>[];
  /** What observers caused while they were being told of something else. */
  #waiting: (() => void)[] | undefined;

  constructor(observers: readonly SchedulerObserver<Scheduler>[]) {
    this.observers = observers;
  }

  opened(scheduler: Scheduler, window: VerifyWindow): void {
    this.#tell((observer) => observer.opened?.(scheduler, window));
  }

  completed(
    scheduler: Scheduler,
    window: VerifyWindow,
    verdict: WindowVerdict,
    durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void {
    this.#tell((observer) => observer.completed?.(scheduler, window, verdict, durationMs, outcome));
  }

  dropped(scheduler: Scheduler, window: VerifyWindow, reason: DropReason): void {
    this.#tell((observer) => observer.dropped?.(scheduler, window, reason));
  }

  recoveryEpoch(scheduler: Scheduler, markedStale: number): void {
    this.#tell((observer) => observer.recoveryEpoch?.(scheduler, markedStale));
  }

  refused(scheduler: Scheduler, code: VerifyWindowErrorCode): void {
    this.#tell((observer) => observer.refused?.(scheduler, code));
  }

  closed(scheduler: Scheduler): void {
    this.#tell((observer) => observer.closed?.(scheduler));
  }

  /** Tells of several events that happened at once, before anything that observers cause. */
  together(tellAll: () => void): void {
    if (this.#waiting !== undefined) {
      tellAll();
      return;
    }
    const waiting: (() => void)[] = [];
    this.#waiting = waiting;
    tellAll();
    // The list may grow on the way.
    for (const next of waiting) next();
    this.#waiting = undefined;
  }

  #tell(tell: (observer: SchedulerObserver<Scheduler>) => void): void {
    const { observers } = this;
    this.together(() => this.#waiting?.push(() => tellEach(observers, tell)));
  }
}

function tellEach<Scheduler>(
  observers: readonly SchedulerObserver<Scheduler>[],
  tell: (observer: SchedulerObserver<Scheduler>) => void,
): void {
  for (const observer of observers) {
    try {
      tell(observer);
    } catch (error) {
      reportFailure(observer, error);
    }
  }
}

/** Tells an observer that it threw; the scheduler's caller is not to hear of it. */
export function reportFailure(observer: SchedulerObserver<never>, error: unknown): void {
  try {
    observer.failed?.(error);
  } catch {
    // Its last way to speak failed too.
  }
}
