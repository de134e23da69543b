import type {
  DropReason,
  VerifyWindow,
  VerifyWindowErrorCode,
  VerifyWindowStats,
  WindowOutcome,
  WindowVerdict,
} from '../../src/index.js';
import type { Operation } from './operations.js';

/** What an observer is told, without the scheduler that it is about. */
export type Event =
  | readonly ['opened', VerifyWindow]
  | readonly ['completed', VerifyWindow, WindowVerdict, number, WindowOutcome | undefined]
  | readonly ['dropped', VerifyWindow, DropReason]
  | readonly ['recoveryEpoch', number]
  | readonly ['refused', VerifyWindowErrorCode]
  | readonly ['closed'];

class Refusal {
  constructor(readonly code: VerifyWindowErrorCode) {}
}

/** The scheduler once more, as simply as it can be said: a queue, and a list of what happened. */
export class Model {
  readonly depth: number;
  readonly queue: { readonly window: VerifyWindow; readonly openedAtMs: number }[] = [];
  readonly events: Event[] = [];
  /** Each stretch of time, with the number of windows that were in flight. */
  readonly #stretches: { readonly inFlight: number; readonly ms: number }[] = [];
  readonly #discarded = new Set<number>();
  #readAtMs: number;
  #nextId: number;
  maxInFlight = 0;
  proposedTokens = 0;
  acceptedTokens = 0;
  staleMarked = 0;
  staleDiscarded = 0;
  readonly staleMs = { drain: 0, compute: 0, write: 0, wait: 0, verify: 0 };
  readonly returns: boolean[] = [];
  readonly refills: number[] = [];
  isClosed = false;

  constructor(depth: number, firstWindowId: number, nowMs: number) {
    this.depth = depth;
    this.#nextId = firstWindowId;
    this.#readAtMs = nowMs;
  }

  get oldestId(): number {
    return this.queue[0]?.window.id ?? this.#nextId;
  }

  get lifetimeMs(): number {
    return sum(this.#stretches.map(({ ms }) => ms));
  }

  /** How many events there were of a kind, and, where told, with this at their second place. */
  count(kind: Event[0], detail?: unknown): number {
    return this.events.filter(
      (event) => event[0] === kind && (detail === undefined || event.includes(detail as never)),
    ).length;
  }

  /** What the call gives back, or the code with which it is refused. */
  perform(operation: Operation, nowMs: number): { value: unknown } | { code: string } {
    try {
      return { value: this.#perform(operation, nowMs) };
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      this.events.push(['refused', refusal.code]);
      return { code: refusal.code };
    }
  }

  #perform(operation: Operation, nowMs: number): unknown {
    const { name } = operation;
    if (name === 'clock' || name === 'subscribe' || name === 'unsubscribe') return undefined;
    if (name === 'close') return this.#close(nowMs);
    if (name === 'discardStale') return this.#drop('stale', nowMs);
    if (this.isClosed) throw new Refusal('closed');
    if (name === 'open') return this.#open(operation.basePosition, operation.decodeStep, nowMs);
    if (name === 'completeNext') {
      return this.#complete(this.oldestId + operation.idOffset, operation.outcome, nowMs);
    }
    if ('count' in operation) requireCount(operation.count);
    if (name === 'recordStaleDiscarded') {
      this.staleDiscarded = saturated(this.staleDiscarded + operation.count);
      this.staleMs.drain += duration(operation.drainMs);
    } else if (name === 'recordStaleExecution') {
      const { execution } = operation;
      this.staleDiscarded = saturated(this.staleDiscarded + 1);
      this.staleMs.drain += duration(execution.drainMs);
      this.staleMs.compute += duration(execution.stage0ComputeMs);
      this.staleMs.write += duration(execution.forwardWriteMs);
      this.staleMs.wait += duration(execution.downstreamWaitMs);
      this.staleMs.verify += duration(execution.verifyElapsedMs);
    } else if (name === 'markRecoveryEpoch') {
      this.staleMarked = saturated(this.staleMarked + operation.count);
      this.events.push(['recoveryEpoch', operation.count]);
    } else if (name === 'markStale') {
      this.staleMarked = saturated(this.staleMarked + operation.count);
    } else if (name === 'markDirectPredictionReturn') {
      this.returns.push(operation.upstreamOpened);
    } else {
      this.refills.push(operation.count);
    }
    return undefined;
  }

  #open(basePosition: number, decodeStep: number, nowMs: number): VerifyWindow {
    requireCount(basePosition);
    requireCount(decodeStep);
    if (this.queue.length >= this.depth) throw new Refusal('depth_exceeded');
    if (this.#nextId >= 2147483647) throw new Refusal('id_overflow');
    this.#passTime(nowMs);
    const window = { id: this.#nextId++, basePosition, decodeStep };
    this.queue.push({ window, openedAtMs: this.lifetimeMs });
    this.maxInFlight = Math.max(this.maxInFlight, this.queue.length);
    this.events.push(['opened', window]);
    return window;
  }

  #complete(replyId: number, outcome: WindowOutcome | undefined, nowMs: number): VerifyWindow {
    const [oldest] = this.queue;
    if (replyId !== oldest?.window.id && this.#discarded.has(replyId)) {
      throw new Refusal('reply_stale');
    }
    if (oldest === undefined) throw new Refusal('reply_without_window');
    if (replyId !== oldest.window.id) throw new Refusal('reply_out_of_order');
    const verdict = judge(outcome);
    this.#passTime(nowMs);
    this.queue.shift();
    if (outcome !== undefined && !outcome.stale) {
      this.proposedTokens = saturated(this.proposedTokens + outcome.proposedTokens);
      this.acceptedTokens = saturated(this.acceptedTokens + outcome.acceptedTokens);
    }
    const durationMs = this.lifetimeMs - oldest.openedAtMs;
    this.events.push(['completed', oldest.window, verdict, durationMs, outcome]);
    return oldest.window;
  }

  #drop(reason: DropReason, nowMs: number): number {
    const dropped = this.queue.length;
    if (dropped > 0) this.#passTime(nowMs);
    for (const { window } of this.queue.splice(0)) {
      this.events.push(['dropped', window, reason]);
      if (reason === 'stale') this.#discarded.add(window.id);
    }
    if (reason === 'stale') this.staleDiscarded = saturated(this.staleDiscarded + dropped);
    return dropped;
  }

  #close(nowMs: number): void {
    if (this.isClosed) return;
    this.#passTime(nowMs);
    this.#drop('closed', nowMs);
    this.isClosed = true;
    this.events.push(['closed']);
  }

  #passTime(nowMs: number): void {
    this.#stretches.push({ inFlight: this.queue.length, ms: this.#pendingMs(nowMs) });
    if (!Number.isNaN(nowMs)) this.#readAtMs = nowMs;
  }

  #pendingMs(nowMs: number): number {
    return this.isClosed ? 0 : duration(nowMs - this.#readAtMs);
  }

  stats(nowMs: number): VerifyWindowStats {
    const stretches = [
      ...this.#stretches,
      { inFlight: this.queue.length, ms: this.#pendingMs(nowMs) },
    ];
    const timeWith = (wanted: (inFlight: number) => boolean) =>
      sum(stretches.filter(({ inFlight }) => wanted(inFlight)).map(({ ms }) => ms));
    const totalMs = timeWith(() => true);
    const share = (ms: number) => (totalMs === 0 ? 0 : ms / totalMs);
    const parallelMs = timeWith((inFlight) => inFlight >= 2);
    const fullMs = timeWith((inFlight) => inFlight === this.depth);
    const hits = this.refills.filter((tokens) => tokens > 0);
    return {
      depth: this.depth,
      opened: this.count('opened'),
      maxInFlight: this.maxInFlight,
      recoveryEpochs: this.count('recoveryEpoch'),
      staleMarked: this.staleMarked,
      staleDiscarded: this.staleDiscarded,
      staleDrainMs: this.staleMs.drain,
      staleStage0ComputeMs: this.staleMs.compute,
      staleForwardWriteMs: this.staleMs.write,
      staleDownstreamWaitMs: this.staleMs.wait,
      staleVerifyElapsedMs: this.staleMs.verify,
      directReturnUpstreamOpened: this.returns.at(-1) === true,
      directReturnReverseFallback: this.returns.at(-1) === false,
      horizonRefillAttempts: this.refills.length,
      horizonRefillSuccesses: hits.length,
      horizonRefillTokens: hits.reduce((total, tokens) => saturated(total + tokens), 0),
      horizonRefillMisses: this.refills.length - hits.length,
      occupancyMsByDepth: Array.from({ length: this.depth + 1 }, (_, level) =>
        timeWith((inFlight) => inFlight === level),
      ),
      occupancyTotalMs: totalMs,
      occupancyParallelMs: parallelMs,
      occupancyParallelFraction: share(parallelMs),
      occupancyFullMs: fullMs,
      occupancyFullFraction: share(fullMs),
      occupancyAverageInFlight: share(sum(stretches.map(({ inFlight, ms }) => inFlight * ms))),
    };
  }
}

function judge(outcome: WindowOutcome | undefined): WindowVerdict {
  if (outcome === undefined) return 'unverified';
  if (outcome.stale) return 'stale';
  const { proposedTokens, acceptedTokens } = outcome;
  requireCount(proposedTokens);
  requireCount(acceptedTokens);
  if (acceptedTokens > proposedTokens) throw new Refusal('invalid_argument');
  if (proposedTokens === 0) return 'unverified';
  if (acceptedTokens === 0) return 'reject';
  return acceptedTokens < proposedTokens ? 'partial_accept' : 'full_accept';
}

function requireCount(value: number): void {
  if (!Number.isSafeInteger(value) || value < 0) throw new Refusal('invalid_argument');
}

function saturated(count: number): number {
  return Math.min(count, Number.MAX_SAFE_INTEGER);
}

function duration(ms: number): number {
  return Number.isFinite(ms) ? Math.max(ms, 0) : 0;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
