import { announce } from './channel.js';
import { describe } from './describe.js';
import { VerifyWindowError, type VerifyWindowErrorCode } from './error.js';
import { FanOut, reportFailure } from './fan-out.js';
import type { VerifyWindowObserver } from './observer.js';
import { addCount, addMs, isCount } from './quantities.js';
import { snapshot, type VerifyWindowStats } from './stats.js';
import { Tally } from './tally.js';
import { removeUnannounced } from './unannounced.js';
import {
  type DropReason,
  type VerifyWindow,
  verdictOf,
  type WindowOutcome,
} from './verify-window.js';

/** The deepest pipeline that a scheduler takes: each level is a series of its own in the metrics. */
export const MAX_DEPTH = 1024;

/** Ids are signed 32-bit on the wire; this one is never handed out. */
const ID_LIMIT = 0x7fff_ffff;

export interface VerifyWindowSchedulerOptions {
  /**
   * The most windows that may be in flight: an integer up to {@link MAX_DEPTH}. Less than 1
   * counts as 1, which is serial verification; pipelining needs at least 2.
   */
  readonly depth: number;
  /** Id of the first window: an integer from 0 to 2147483647. Default: 1. */
  readonly firstWindowId?: number;
  /**
   * Milliseconds, from any origin, that do not run backwards: a step back counts as no time.
   * Default: `performance.now`.
   */
  readonly clock?: () => number;
}

/** The work that one stale window burned, in milliseconds. Negative and NaN count as 0. */
export interface StaleExecution {
  /** The coordinator waited this long for the reply that it then threw away. */
  readonly drainMs: number;
  readonly stage0ComputeMs: number;
  readonly forwardWriteMs: number;
  readonly downstreamWaitMs: number;
  /** From sending the window to the end of its verification. */
  readonly verifyElapsedMs: number;
}

/**
 * Schedules the verify windows of one generation: a FIFO of at most `depth` windows in flight,
 * with its statistics. It holds numbers only, makes no timer and no promise, and reads its clock
 * once for each transition.
 *
 * @example
 * using scheduler = new VerifyWindowScheduler({ depth: 4 });
 * const window = scheduler.open(basePosition, decodeStep);
 * send(window.id, candidates);
 * const reply = await nextReply();
 * scheduler.completeNext(reply.windowId, { proposedTokens: 8, acceptedTokens: 5 });
 */
export class VerifyWindowScheduler {
  /**
   * The live counts, for whoever watches the scheduler without keeping it alive. Read only;
   * {@link VerifyWindowScheduler.stats} is the snapshot to hand on.
   */
  readonly tally: Tally;

  /** Ring of `depth` slots, the oldest window at `#head`. */
  readonly #windows: (VerifyWindow | undefined)[];
  /** When each window was opened, in milliseconds of the scheduler's life; same slots. */
  readonly #openedAtMs: number[];
  #head = 0;
  #nextId: number;
  #observer: VerifyWindowObserver | undefined;
  readonly #unannounced: WeakRef<VerifyWindowScheduler> | undefined;

  /**
   * @throws {VerifyWindowError} `invalid_argument` for a depth or a first id that is no integer
   * or out of its range, and for a clock that is no function.
   */
  constructor(options: VerifyWindowSchedulerOptions) {
    const { depth, firstWindowId = 1, clock = defaultClock } = options ?? {};
    if (!Number.isInteger(depth) || depth > MAX_DEPTH) {
      throw new VerifyWindowError(
        'invalid_argument',
        `depth must be an integer up to ${MAX_DEPTH}, got ${describe(depth)}`,
      );
    }
    if (!Number.isInteger(firstWindowId) || firstWindowId < 0 || firstWindowId > ID_LIMIT) {
      throw new VerifyWindowError(
        'invalid_argument',
        `firstWindowId must be an integer from 0 to ${ID_LIMIT}, got ${describe(firstWindowId)}`,
      );
    }
    if (typeof clock !== 'function') {
      throw new VerifyWindowError(
        'invalid_argument',
        `clock must be a function, got ${describe(clock)}`,
      );
    }
    const slots = Math.max(1, depth);
    this.tally = new Tally(slots, clock);
    this.#windows = new Array(slots).fill(undefined);
    this.#openedAtMs = new Array(slots).fill(0);
    this.#nextId = firstWindowId;
    this.#unannounced = announce(this);
  }

  /** The most windows that may be in flight. */
  get depth(): number {
    return this.tally.depth;
  }

  /** Windows opened and not yet retired. */
  get inFlight(): number {
    return this.tally.inFlight;
  }

  /** Whether another window may be opened. */
  get hasCapacity(): boolean {
    return !this.tally.isClosed && this.tally.inFlight < this.tally.depth;
  }

  /** Stale windows drained so far. */
  get staleDiscarded(): number {
    return this.tally.staleDiscarded;
  }

  /** Whether {@link VerifyWindowScheduler.close} was called. */
  get isClosed(): boolean {
    return this.tally.isClosed;
  }

  /**
   * Admits a window.
   *
   * @param basePosition absolute position of its first input token, in tokens.
   * @param decodeStep tokens decoded so far.
   * @throws {VerifyWindowError} `depth_exceeded` while `depth` windows are in flight,
   * `id_overflow` once the 32-bit ids are used up, `invalid_argument` for a position or a step
   * that is no count, `closed` after `close()`.
   */
  open(basePosition: number, decodeStep: number): VerifyWindow {
    const tally = this.tally;
    if (tally.isClosed) this.#refuse('closed', 'verify window scheduler is closed');
    if (!isCount(basePosition)) this.#refuseCount('basePosition', basePosition);
    if (!isCount(decodeStep)) this.#refuseCount('decodeStep', decodeStep);
    if (tally.inFlight >= tally.depth) {
      this.#refuse('depth_exceeded', 'verify window pipeline depth exceeded');
    }
    const id = this.#nextId;
    if (id >= ID_LIMIT) this.#refuse('id_overflow', 'verify window id overflow');

    const openedAtMs = tally.advance();
    const window: VerifyWindow = { id, basePosition, decodeStep };
    let slot = this.#head + tally.inFlight;
    if (slot >= tally.depth) slot -= tally.depth;
    this.#windows[slot] = window;
    this.#openedAtMs[slot] = openedAtMs;
    this.#nextId = id + 1;
    tally.opened++;
    tally.inFlight++;
    if (tally.inFlight > tally.maxInFlight) tally.maxInFlight = tally.inFlight;
    const observer = this.#observer;
    if (observer !== undefined) {
      try {
        observer.opened?.(this, window);
      } catch (error) {
        reportFailure(observer, error);
      }
    }
    return window;
  }

  /**
   * Retires the oldest window by its reply.
   *
   * @param replyWindowId the id that the reply names; replies come in the order of the windows.
   * @param outcome what the coordinator found; the verdict comes from it.
   * @throws {VerifyWindowError} `reply_without_window`, `reply_out_of_order`, `invalid_argument`
   * for an outcome that cannot be, `closed` after `close()`.
   */
  completeNext(replyWindowId: number, outcome?: WindowOutcome): VerifyWindow {
    const tally = this.tally;
    if (tally.isClosed) this.#refuse('closed', 'verify window scheduler is closed');
    const window = tally.inFlight > 0 ? this.#windows[this.#head] : undefined;
    if (window === undefined) {
      this.#refuse('reply_without_window', 'verify window reply arrived with no in-flight window');
    }
    // The caller holds the window object too, so the id to expect is not read from there.
    const expected = this.#nextId - tally.inFlight;
    if (replyWindowId !== expected) {
      this.#refuse(
        'reply_out_of_order',
        `verify window reply out of order: got ${describe(replyWindowId)}, expected ${expected}`,
      );
    }
    const verdict = verdictOf(outcome);
    if (verdict === undefined) {
      this.#refuse(
        'invalid_argument',
        'outcome must be { stale: true }, or have integers with 0 <= acceptedTokens <= proposedTokens',
      );
    }

    const durationMs = tally.advance() - (this.#openedAtMs[this.#head] ?? 0);
    this.#shift();
    tally.completed[verdict]++;
    if (outcome !== undefined && !outcome.stale) {
      tally.proposedTokens = addCount(tally.proposedTokens, outcome.proposedTokens);
      tally.acceptedTokens = addCount(tally.acceptedTokens, outcome.acceptedTokens);
    }
    const observer = this.#observer;
    if (observer !== undefined) {
      try {
        observer.completed?.(this, window, verdict, durationMs, outcome);
      } catch (error) {
        reportFailure(observer, error);
      }
    }
    return window;
  }

  /**
   * Drops every window in flight as stale, without waiting for replies. After `close()` there is
   * nothing to drop.
   *
   * @returns how many were dropped.
   */
  discardStale(): number {
    const tally = this.tally;
    const windows = this.#takeAll();
    if (windows.length === 0) return 0;
    tally.advance();
    tally.inFlight = 0;
    tally.dropped.stale += windows.length;
    tally.staleDiscarded = addCount(tally.staleDiscarded, windows.length);
    this.#notifyDropped(windows, 'stale');
    return windows.length;
  }

  /**
   * Counts stale windows whose replies were drained and thrown away.
   *
   * @param drainMs milliseconds spent on it; negative and NaN count as 0.
   * @throws {VerifyWindowError} `invalid_argument` for a count that is none, `closed`.
   */
  recordStaleDiscarded(count: number, drainMs: number): void {
    this.#require('count', count);
    this.tally.staleDiscarded = addCount(this.tally.staleDiscarded, count);
    this.tally.staleDrainMs = addMs(this.tally.staleDrainMs, drainMs);
  }

  /**
   * Counts one drained stale window, and the work that it burned.
   *
   * @throws {VerifyWindowError} `invalid_argument` for what is no object, `closed`.
   */
  recordStaleExecution(execution: StaleExecution): void {
    this.#requireLive();
    if (typeof execution !== 'object' || execution === null) {
      this.#refuse(
        'invalid_argument',
        `execution must be an object with durations, got ${describe(execution)}`,
      );
    }
    const tally = this.tally;
    tally.staleDiscarded = addCount(tally.staleDiscarded, 1);
    tally.staleDrainMs = addMs(tally.staleDrainMs, execution.drainMs);
    tally.staleStage0ComputeMs = addMs(tally.staleStage0ComputeMs, execution.stage0ComputeMs);
    tally.staleForwardWriteMs = addMs(tally.staleForwardWriteMs, execution.forwardWriteMs);
    tally.staleDownstreamWaitMs = addMs(tally.staleDownstreamWaitMs, execution.downstreamWaitMs);
    tally.staleVerifyElapsedMs = addMs(tally.staleVerifyElapsedMs, execution.verifyElapsedMs);
  }

  /**
   * A divergence or a stop ended the optimistic branch: counts the recovery epoch and the windows
   * that it made stale.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a count that is none, `closed`.
   */
  markRecoveryEpoch(staleCount: number): void {
    this.#require('staleCount', staleCount);
    this.tally.recoveryEpochs = addCount(this.tally.recoveryEpochs, 1);
    this.tally.staleMarked = addCount(this.tally.staleMarked, staleCount);
    this.#notify((observer) => observer.recoveryEpoch?.(this, staleCount));
  }

  /**
   * Marks further windows stale within the present recovery epoch.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a count that is none, `closed`.
   */
  markStale(staleCount: number): void {
    this.#require('staleCount', staleCount);
    this.tally.staleMarked = addCount(this.tally.staleMarked, staleCount);
  }

  /**
   * Notes by which path the last stage returns its predictions.
   *
   * @param upstreamOpened true for the sink that the upstream opened, false for the reverse
   * fallback that the last stage opened. The last call stands in the statistics.
   * @throws {VerifyWindowError} `closed`.
   */
  markDirectPredictionReturn(upstreamOpened: boolean): void {
    this.#requireLive();
    this.tally.directReturnPath = upstreamOpened ? 'upstream_opened' : 'reverse_fallback';
    if (upstreamOpened) this.tally.directReturnUpstreamOpened = true;
    else this.tally.directReturnReverseFallback = true;
  }

  /**
   * Counts one attempt to extend the guess; one that appended no token is a miss.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a count that is none, `closed`.
   */
  recordHorizonRefill(appendedTokens: number): void {
    this.#require('appendedTokens', appendedTokens);
    if (appendedTokens > 0) this.tally.horizonRefillSuccesses++;
    else this.tally.horizonRefillMisses++;
    this.tally.horizonRefillTokens = addCount(this.tally.horizonRefillTokens, appendedTokens);
  }

  /**
   * Whether windows of `width` tokens can be pipelined: there must be a token to verify, and room
   * for a second window.
   */
  supportsPipelining(width: number): boolean {
    return this.depth > 1 && width > 0;
  }

  /** A snapshot at this moment. Taking it changes nothing. */
  stats(): VerifyWindowStats {
    return snapshot(this.tally);
  }

  /**
   * Tells `observer` what happens from now on.
   *
   * @returns a function that ends the subscription; calling it again does nothing.
   */
  subscribe(observer: VerifyWindowObserver): () => void {
    // The list is replaced and never changed, so that a call under way keeps the one it has.
    this.#setObservers([...this.#observers, observer]);
    let subscribed = true;
    return () => {
      if (!subscribed) return;
      subscribed = false;
      this.#setObservers(this.#observers.toSpliced(this.#observers.indexOf(observer), 1));
    };
  }

  /**
   * Ends the generation: windows still in flight are dropped with the reason `closed`, and time
   * stands still. The statistics stay readable. Closing again does nothing.
   */
  close(): void {
    if (this.tally.isClosed) return;
    const windows = this.#takeAll();
    this.tally.end();
    if (this.#unannounced !== undefined) removeUnannounced(this.#unannounced);
    this.#notifyDropped(windows, 'closed');
    this.#notify((observer) => observer.closed?.(this));
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Empties the ring, and returns what was in it, the oldest first. */
  #takeAll(): VerifyWindow[] {
    const windows: VerifyWindow[] = [];
    for (let taken = 0; taken < this.tally.inFlight; taken++) {
      const slot = (this.#head + taken) % this.tally.depth;
      const window = this.#windows[slot];
      if (window !== undefined) windows.push(window);
      this.#windows[slot] = undefined;
    }
    return windows;
  }

  #notifyDropped(windows: readonly VerifyWindow[], reason: DropReason): void {
    for (const window of windows) {
      this.#notify((observer) => observer.dropped?.(this, window, reason));
    }
  }

  /** Takes the oldest window out of the ring, and lets go of it. */
  #shift(): void {
    this.#windows[this.#head] = undefined;
    this.#head = this.#head + 1 === this.tally.depth ? 0 : this.#head + 1;
    this.tally.inFlight--;
  }

  /** For what does not happen with every window; `open` and `completeNext` spare the closure. */
  #notify(tell: (observer: VerifyWindowObserver) => void): void {
    const observer = this.#observer;
    if (observer === undefined) return;
    try {
      tell(observer);
    } catch (error) {
      reportFailure(observer, error);
    }
  }

  get #observers(): readonly VerifyWindowObserver[] {
    const observer = this.#observer;
    if (observer instanceof FanOut) return observer.observers;
    return observer === undefined ? [] : [observer];
  }

  #setObservers(observers: readonly VerifyWindowObserver[]): void {
    this.#observer = observers.length > 1 ? new FanOut(observers) : observers[0];
  }

  #requireLive(): void {
    if (this.tally.isClosed) this.#refuse('closed', 'verify window scheduler is closed');
  }

  #require(name: string, count: number): void {
    this.#requireLive();
    if (!isCount(count)) this.#refuseCount(name, count);
  }

  #refuseCount(name: string, value: number): never {
    this.#refuse(
      'invalid_argument',
      `${name} must be a non-negative safe integer, got ${describe(value)}`,
    );
  }

  #refuse(code: VerifyWindowErrorCode, message: string): never {
    this.tally.countError(code);
    this.#notify((observer) => observer.refused?.(this, code));
    throw new VerifyWindowError(code, message);
  }
}

function defaultClock(): number {
  return performance.now();
}
