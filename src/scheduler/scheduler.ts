import {
  addCount,
  addMs,
  Counts,
  type DropReason,
  isCount,
  MAX_DEPTH,
  type Tally,
  tallyOf,
} from './counts.js';
import {
  announce,
  INTERNALS,
  type PresentTimes,
  READ_NOW,
  retract,
  type SchedulerInternals,
  UNSUBSCRIBE,
} from './discovery.js';
import {
  describeWithoutContent,
  refuseArgument,
  VerifyWindowError,
  type VerifyWindowErrorCode,
} from './error.js';
import { FanOut, reportFailure, type SchedulerObserver } from './observer.js';
import { snapshot, type VerifyWindowStats } from './stats.js';
import { type VerifyWindow, verdictOf, type WindowOutcome } from './verify-window.js';

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

/** Is told what a scheduler does: see {@link SchedulerObserver}. */
export type VerifyWindowObserver = SchedulerObserver<VerifyWindowScheduler>;

/** The message on `SCHEDULER_CHANNEL`. */
export interface SchedulerCreated {
  readonly scheduler: VerifyWindowScheduler;
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
  readonly #counts: Counts;
  readonly #clock: () => number;
  /** The clock at the last transition. */
  #readAt: number;
  /** Ring of `depth` slots, the oldest window at `#head`. */
  readonly #windows: (VerifyWindow | undefined)[];
  /** When each window was opened, in milliseconds of the scheduler's life; same slots. */
  readonly #openedAtMs: number[];
  #head = 0;
  #nextId: number;
  #discarded: DiscardedIds | undefined;
  #observer: VerifyWindowObserver | undefined;
  readonly #internals: SchedulerInternals;

  /**
   * @throws {VerifyWindowError} `invalid_argument` for a depth or a first id that is not an integer
   * or out of its range, and for a clock that is not a function or does not give a finite number.
   */
  constructor(options: VerifyWindowSchedulerOptions) {
    const { depth, firstWindowId = 1, clock = defaultClock } = options ?? {};
    if (!Number.isInteger(depth) || depth > MAX_DEPTH) {
      refuseArgument('depth', `an integer up to ${MAX_DEPTH}`, depth);
    }
    if (!Number.isInteger(firstWindowId) || firstWindowId < 0 || firstWindowId > ID_LIMIT) {
      refuseArgument('firstWindowId', `an integer from 0 to ${ID_LIMIT}`, firstWindowId);
    }
    if (typeof clock !== 'function') refuseArgument('clock', 'a function', clock);
    const readAt = readingOf(clock);
    if (readAt === undefined) {
      refuseArgument('clock', 'a function that gives a finite number', clock);
    }
    const slots = Math.max(1, depth);
    this.#counts = new Counts(slots);
    this.#clock = clock;
    this.#readAt = readAt;
    this.#windows = new Array(slots).fill(undefined);
    this.#openedAtMs = new Array(slots).fill(0);
    this.#nextId = firstWindowId;
    const reference = new WeakRef(this);
    this.#internals = { counts: this.#counts, reference, counting: undefined, tracing: undefined };
    announce(this, reference);
  }

  /** The most windows that may be in flight. */
  get depth(): number {
    return this.#counts.depth;
  }

  /** Windows opened and not yet retired. */
  get inFlight(): number {
    return this.#counts.inFlight;
  }

  /** Whether another window may be opened. */
  get hasCapacity(): boolean {
    return !this.#counts.isClosed && this.#counts.inFlight < this.#counts.depth;
  }

  /**
   * What it has counted up to now, with the verdicts, drop reasons, errors and tokens that
   * {@link VerifyWindowScheduler.stats} leaves out: a frozen copy.
   */
  get tally(): Tally {
    return tallyOf(this.#counts);
  }

  /** For the other layers of this package, as are the next two: see {@link INTERNALS}. */
  get [INTERNALS](): SchedulerInternals {
    return this.#internals;
  }

  [READ_NOW](): PresentTimes {
    const { inFlight, lifetimeMs } = this.#counts;
    const pendingMs = this.#pendingMs();
    const openedAtMs = this.#openedAtMs[this.#head] ?? 0;
    return { pendingMs, oldestAgeMs: inFlight > 0 ? lifetimeMs + pendingMs - openedAtMs : 0 };
  }

  [UNSUBSCRIBE](observer: VerifyWindowObserver): void {
    const place = this.#observers.indexOf(observer);
    if (place >= 0) this.#setObservers(this.#observers.toSpliced(place, 1));
  }

  /** Stale windows drained so far. */
  get staleDiscarded(): number {
    return this.#counts.staleDiscarded;
  }

  /** Whether {@link VerifyWindowScheduler.close} was called. */
  get isClosed(): boolean {
    return this.#counts.isClosed;
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
    const counts = this.#counts;
    if (counts.isClosed) this.#refuse('closed', 'verify window scheduler is closed');
    if (!isCount(basePosition)) this.#refuseCount('basePosition', basePosition);
    if (!isCount(decodeStep)) this.#refuseCount('decodeStep', decodeStep);
    if (counts.inFlight >= counts.depth) {
      this.#refuse('depth_exceeded', 'verify window pipeline depth exceeded');
    }
    const id = this.#nextId;
    if (id >= ID_LIMIT) this.#refuse('id_overflow', 'verify window id overflow');

    const openedAtMs = this.#advance();
    // The clock is the caller's, and may have called the scheduler.
    if (counts.isClosed || this.#nextId !== id) return this.open(basePosition, decodeStep);
    const window: VerifyWindow = { id, basePosition, decodeStep };
    let slot = this.#head + counts.inFlight;
    if (slot >= counts.depth) slot -= counts.depth;
    this.#windows[slot] = window;
    this.#openedAtMs[slot] = openedAtMs;
    this.#nextId = id + 1;
    counts.opened++;
    counts.inFlight++;
    if (counts.inFlight > counts.maxInFlight) counts.maxInFlight = counts.inFlight;
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
   * @throws {VerifyWindowError} `reply_stale` for the reply of a window that `discardStale` dropped,
   * which is no protocol error; `reply_without_window`, `reply_out_of_order`; `invalid_argument` for
   * an outcome that cannot be; `closed` after `close()`.
   */
  completeNext(replyWindowId: number, outcome?: WindowOutcome): VerifyWindow {
    // Read once, before anything is looked at: the caller's object may have getters.
    const read = copyOf(outcome);
    const counts = this.#counts;
    if (counts.isClosed) this.#refuse('closed', 'verify window scheduler is closed');
    const window = counts.inFlight > 0 ? this.#windows[this.#head] : undefined;
    if (window === undefined) {
      this.#refuse(
        this.#isDiscarded(replyWindowId) ? 'reply_stale' : 'reply_without_window',
        'verify window reply arrived with no in-flight window',
      );
    }
    // The caller holds the window object too, so the id to expect is not read from there.
    const expected = this.#nextId - counts.inFlight;
    if (replyWindowId !== expected) {
      this.#refuse(
        this.#isDiscarded(replyWindowId) ? 'reply_stale' : 'reply_out_of_order',
        `verify window reply out of order: got ${describeWithoutContent(replyWindowId)}, expected ${expected}`,
      );
    }
    const verdict = verdictOf(read);
    if (verdict === undefined) {
      this.#refuse(
        'invalid_argument',
        'outcome must be { stale: true }, or have integers with 0 <= acceptedTokens <= proposedTokens',
      );
    }

    const durationMs = this.#advance() - (this.#openedAtMs[this.#head] ?? 0);
    // As above.
    if (this.#windows[this.#head] !== window) return this.completeNext(replyWindowId, read);
    this.#shift();
    counts.completed[verdict]++;
    if (read !== undefined && !read.stale) {
      counts.proposedTokens = addCount(counts.proposedTokens, read.proposedTokens);
      counts.acceptedTokens = addCount(counts.acceptedTokens, read.acceptedTokens);
    }
    const observer = this.#observer;
    if (observer !== undefined) {
      try {
        observer.completed?.(this, window, verdict, durationMs, read);
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
    const counts = this.#counts;
    if (counts.inFlight === 0) return 0;
    this.#advance();
    const windows = this.#takeAll();
    this.#discarded ??= new DiscardedIds();
    this.#discarded.add(this.#nextId - counts.inFlight, this.#nextId);
    counts.dropAll('stale');
    counts.staleDiscarded = addCount(counts.staleDiscarded, windows.length);
    this.#together(() => this.#notifyDropped(windows, 'stale'));
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
    this.#counts.staleDiscarded = addCount(this.#counts.staleDiscarded, count);
    this.#counts.staleDrainMs = addMs(this.#counts.staleDrainMs, drainMs);
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
        `execution must be an object with durations, got ${describeWithoutContent(execution)}`,
      );
    }
    const { drainMs, stage0ComputeMs, forwardWriteMs, downstreamWaitMs, verifyElapsedMs } =
      execution;
    const counts = this.#counts;
    counts.staleDiscarded = addCount(counts.staleDiscarded, 1);
    counts.staleDrainMs = addMs(counts.staleDrainMs, drainMs);
    counts.staleStage0ComputeMs = addMs(counts.staleStage0ComputeMs, stage0ComputeMs);
    counts.staleForwardWriteMs = addMs(counts.staleForwardWriteMs, forwardWriteMs);
    counts.staleDownstreamWaitMs = addMs(counts.staleDownstreamWaitMs, downstreamWaitMs);
    counts.staleVerifyElapsedMs = addMs(counts.staleVerifyElapsedMs, verifyElapsedMs);
  }

  /**
   * A divergence or a stop ended the optimistic branch: counts the recovery epoch and the windows
   * that it made stale.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a count that is none, `closed`.
   */
  markRecoveryEpoch(staleCount: number): void {
    this.#require('staleCount', staleCount);
    this.#counts.recoveryEpochs = addCount(this.#counts.recoveryEpochs, 1);
    this.#counts.staleMarked = addCount(this.#counts.staleMarked, staleCount);
    this.#notify((observer) => observer.recoveryEpoch?.(this, staleCount));
  }

  /**
   * Marks further windows stale within the present recovery epoch.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a count that is none, `closed`.
   */
  markStale(staleCount: number): void {
    this.#require('staleCount', staleCount);
    this.#counts.staleMarked = addCount(this.#counts.staleMarked, staleCount);
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
    this.#counts.markReturn(upstreamOpened ? 'upstream_opened' : 'reverse_fallback');
  }

  /**
   * Counts one attempt to extend the guess; one that appended no token is a miss.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a count that is none, `closed`.
   */
  recordHorizonRefill(appendedTokens: number): void {
    this.#require('appendedTokens', appendedTokens);
    this.#counts.countRefill(appendedTokens > 0 ? 'success' : 'miss');
    this.#counts.horizonRefillTokens = addCount(this.#counts.horizonRefillTokens, appendedTokens);
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
    return snapshot(this.#counts, this.#pendingMs());
  }

  /**
   * Tells `observer` what happens from now on.
   *
   * @returns a function that ends the subscription; calling it again does nothing.
   * @throws {VerifyWindowError} `invalid_argument` for what is not an object.
   */
  subscribe(observer: VerifyWindowObserver): () => void {
    if (typeof observer !== 'object' || observer === null) {
      refuseArgument('observer', 'an object', observer);
    }
    // The list is replaced and never changed, so that a call under way keeps the one it has.
    this.#setObservers([...this.#observers, observer]);
    let subscribed = true;
    return () => {
      if (!subscribed) return;
      subscribed = false;
      this[UNSUBSCRIBE](observer);
    };
  }

  /**
   * Ends the generation: windows still in flight are dropped with the reason `closed`, and time
   * stands still. The statistics stay readable. Closing again does nothing.
   */
  close(): void {
    const counts = this.#counts;
    if (counts.isClosed) return;
    this.#advance();
    // The clock is the caller's, and may have closed it.
    if (counts.isClosed) return;
    const windows = this.#takeAll();
    counts.dropAll('closed');
    counts.isClosed = true;
    retract(this.#internals.reference);
    this.#together(() => {
      this.#notifyDropped(windows, 'closed');
      this.#notify((observer) => observer.closed?.(this));
    });
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #isDiscarded(windowId: number): boolean {
    return this.#discarded?.has(windowId) === true;
  }

  /** Empties the ring, and returns what was in it, the oldest first. */
  #takeAll(): VerifyWindow[] {
    const windows: VerifyWindow[] = [];
    for (let taken = 0; taken < this.#counts.inFlight; taken++) {
      const slot = (this.#head + taken) % this.#counts.depth;
      const window = this.#windows[slot];
      if (window !== undefined) windows.push(window);
      this.#windows[slot] = undefined;
    }
    return windows;
  }

  /** Tells of events that happened at once. */
  #together(tellAll: () => void): void {
    if (this.#observer instanceof FanOut) this.#observer.together(tellAll);
    else tellAll();
  }

  #notifyDropped(windows: readonly VerifyWindow[], reason: DropReason): void {
    for (const window of windows) {
      this.#notify((observer) => observer.dropped?.(this, window, reason));
    }
  }

  /** Takes the oldest window out of the ring, and lets go of it. */
  #shift(): void {
    this.#windows[this.#head] = undefined;
    this.#head = this.#head + 1 === this.#counts.depth ? 0 : this.#head + 1;
    this.#counts.inFlight--;
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
    // A fan-out stays: it may be under way, and keeps what happens meanwhile in order.
    if (this.#observer instanceof FanOut) this.#observer.observers = observers;
    else this.#observer = observers.length > 1 ? new FanOut(observers) : observers[0];
  }

  /**
   * Reads the clock, books the time since the last transition at the present occupancy level, and
   * returns the milliseconds of life so far.
   */
  #advance(): number {
    const counts = this.#counts;
    const now = readingOf(this.#clock);
    // A reading that is no time books none, and does not become the next base.
    if (now === undefined) return counts.lifetimeMs;
    const passed = now - this.#readAt;
    this.#readAt = now;
    const lifetimeMs = counts.lifetimeMs + passed;
    // A step back, and a leap beyond what doubles can count, are no time.
    if (passed > 0 && lifetimeMs <= Number.MAX_SAFE_INTEGER) {
      counts.lifetimeMs = lifetimeMs;
      counts.occupancyMs[counts.inFlight] = (counts.occupancyMs[counts.inFlight] ?? 0) + passed;
    }
    return counts.lifetimeMs;
  }

  /** Milliseconds since the last transition; 0 once it is closed. */
  #pendingMs(): number {
    if (this.#counts.isClosed) return 0;
    const passed = (readingOf(this.#clock) ?? this.#readAt) - this.#readAt;
    return passed > 0 && this.#counts.lifetimeMs + passed <= Number.MAX_SAFE_INTEGER ? passed : 0;
  }

  #requireLive(): void {
    if (this.#counts.isClosed) this.#refuse('closed', 'verify window scheduler is closed');
  }

  #require(name: string, count: number): void {
    this.#requireLive();
    if (!isCount(count)) this.#refuseCount(name, count);
  }

  #refuseCount(name: string, value: number): never {
    this.#refuse(
      'invalid_argument',
      `${name} must be a non-negative safe integer, got ${describeWithoutContent(value)}`,
    );
  }

  #refuse(code: VerifyWindowErrorCode, message: string): never {
    this.#counts.countError(code);
    this.#notify((observer) => observer.refused?.(this, code));
    throw new VerifyWindowError(code, message);
  }
}

/** As many stale discards of one generation are remembered. */
const MAX_DISCARDS = 1024;

/** The ids of the windows that were discarded: their replies may still be on the wire. */
class DiscardedIds {
  /** Where a range begins, and the id after its end, in turns; they rise. */
  readonly #bounds: number[] = [];

  add(from: number, to: number): void {
    if (this.#bounds.at(-1) === from) this.#bounds.pop();
    else this.#bounds.push(from);
    this.#bounds.push(to);
    if (this.#bounds.length > 2 * MAX_DISCARDS) this.#bounds.splice(0, 2);
  }

  has(id: number): boolean {
    // What is no number need not even be comparable with one.
    if (!Number.isInteger(id)) return false;
    // An id between a beginning and an end has an odd number of bounds at or below it.
    return this.#bounds.findIndex((bound) => bound > id) % 2 === 1;
  }
}

function defaultClock(): number {
  return performance.now();
}

/** What the clock says; `undefined` where it throws or does not give a finite number. */
function readingOf(clock: () => number): number | undefined {
  try {
    const now = clock();
    return Number.isFinite(now) ? now : undefined;
  } catch {
    return undefined;
  }
}

/** An outcome of the caller's as plain data; one that throws when it is read is none that can be. */
function copyOf(outcome: WindowOutcome | undefined): WindowOutcome | undefined {
  if (outcome === undefined) return undefined;
  try {
    const { stale, proposedTokens, acceptedTokens } = outcome as ReadableOutcome;
    return stale ? { stale: true } : { proposedTokens, acceptedTokens };
  } catch {
    return { proposedTokens: Number.NaN, acceptedTokens: Number.NaN };
  }
}

type ReadableOutcome = {
  readonly stale?: boolean;
  readonly proposedTokens: number;
  readonly acceptedTokens: number;
};
