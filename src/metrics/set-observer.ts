import type { VerifyWindowErrorCode } from '../scheduler/error.js';
import type { VerifyWindowObserver } from '../scheduler/observer.js';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import type { Tally } from '../scheduler/tally.js';
import type { VerifyWindow, WindowOutcome, WindowVerdict } from '../scheduler/verify-window.js';
import type { AttributeSet } from './attribute-set.js';
import type { WindowHistograms } from './window-histograms.js';

/** What the observer needs of its bridge. */
export interface Bridge {
  readonly isEnabled: boolean;
  /** Whether there is no provider yet, so that one may come at any time. */
  readonly isWaiting: boolean;
  followProvider(): void;
  foldClosed(observer: SetObserver, tally: Tally): void;
  foldForgotten(observer: SetObserver, tally: Tally): void;
  report(error: unknown): void;
}

/** Watches all schedulers of one attribute set. */
export class SetObserver implements VerifyWindowObserver {
  readonly set: AttributeSet;
  readonly histograms: WindowHistograms;
  /** Tells of schedulers that were garbage-collected before they were closed, by their tallies. */
  readonly forgotten = new FinalizationRegistry<Tally>((tally) =>
    this.#bridge.foldForgotten(this, tally),
  );
  readonly #bridge: Bridge;

  constructor(bridge: Bridge, set: AttributeSet, histograms: WindowHistograms) {
    this.#bridge = bridge;
    this.set = set;
    this.histograms = histograms;
  }

  opened(scheduler: VerifyWindowScheduler): void {
    if (this.#bridge.isWaiting) this.#bridge.followProvider();
    if (!this.#bridge.isEnabled) return;
    this.histograms.occupancy.record(scheduler.tally.inFlight);
  }

  completed(
    _scheduler: VerifyWindowScheduler,
    _window: VerifyWindow,
    verdict: WindowVerdict,
    durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void {
    if (!this.#bridge.isEnabled) return;
    this.histograms.duration.record(durationMs / 1000);
    if (outcome !== undefined && !outcome.stale && verdict !== 'unverified') {
      this.histograms.acceptedLength.record(outcome.acceptedTokens);
    }
  }

  refused({ tally }: VerifyWindowScheduler, code: VerifyWindowErrorCode): void {
    // While it is live, its tally has counted the error already.
    if (!this.set.isLive(tally)) this.set.addLateError(code);
  }

  closed({ tally }: VerifyWindowScheduler): void {
    this.#bridge.foldClosed(this, tally);
  }

  failed(error: unknown): void {
    this.#bridge.report(error);
  }
}
