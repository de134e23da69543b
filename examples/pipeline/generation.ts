import {
  injectTraceContext,
  type Generation as ObservedGeneration,
  type VerifyWindow,
  type VerifyWindowScheduler,
  windowContext,
} from 'llama-stage-otel';
import { propose } from './proposer.js';
import type { Verification, Verifier } from './verifier.js';

export interface GenerationOptions {
  readonly id: number;
  readonly prompt: readonly number[];
  /** Tokens to generate. */
  readonly tokens: number;
  /** Candidates in a window, at most. */
  readonly width: number;
}

/** What came out, and when. */
export interface Output {
  readonly tokens: readonly number[];
  /** Milliseconds from the start to the first token. */
  readonly timeToFirstTokenMs: number;
  /** Milliseconds between one token and the next. */
  readonly interTokenMs: readonly number[];
}

interface InFlight {
  readonly window: VerifyWindow;
  readonly epoch: number;
  /** Position after the window's last input token. */
  readonly end: number;
  readonly proposedTokens: number;
  readonly verification: Promise<Verification>;
}

/**
 * The decode loop of one generation. Its sequence has three parts: what is committed, what was
 * guessed beyond that and sent, and what was guessed and not sent yet.
 */
export class Generation {
  readonly #chain: Verifier;
  readonly #scheduler: VerifyWindowScheduler;
  readonly #observed: ObservedGeneration;
  readonly #options: GenerationOptions;
  /** The prompt, the committed tokens, and the guess. */
  readonly #sequence: number[];
  /** Length of the part of the sequence that the target has confirmed. */
  #committed: number;
  /** Position of the next token to send as a window's input. */
  #unsent: number;
  /** Length of the sequence at the last look-up that found nothing; it is not asked twice. */
  #missedAt = -1;
  #epoch = 0;
  readonly #inFlight: InFlight[] = [];
  readonly #committedAtMs: number[] = [];

  constructor(chain: Verifier, observed: ObservedGeneration, options: GenerationOptions) {
    this.#chain = chain;
    this.#scheduler = observed.scheduler;
    this.#observed = observed;
    this.#options = options;
    this.#sequence = [...options.prompt];
    this.#committed = options.prompt.length;
    this.#unsent = this.#committed - 1;
  }

  async run(): Promise<Output> {
    const { id, prompt } = this.#options;
    const startedAtMs = performance.now();
    this.#scheduler.markDirectPredictionReturn(this.#chain.upstreamOpened);
    this.#chain.begin(id, prompt.slice(0, -1));
    while (!this.#isDone) {
      this.#fill();
      await this.#takeReply();
    }
    await this.#stop();
    const [first = startedAtMs, ...rest] = this.#committedAtMs;
    return {
      tokens: this.#sequence.slice(prompt.length, this.#end),
      timeToFirstTokenMs: first - startedAtMs,
      interTokenMs: rest.map((at, index) => at - (this.#committedAtMs[index] ?? at)),
    };
  }

  /** Length of the sequence when the generation is complete. */
  get #end(): number {
    return this.#options.prompt.length + this.#options.tokens;
  }

  get #isDone(): boolean {
    return this.#committed >= this.#end;
  }

  /** Opens windows as long as there is room and something to verify. */
  #fill(): void {
    while (this.#scheduler.hasCapacity) {
      if (this.#sequence.length - this.#unsent < this.#options.width) this.#refill();
      if (this.#unsent >= this.#sequence.length) return;
      this.#open();
    }
  }

  /** Extends the guess by what once followed the whole of it. */
  #refill(): void {
    const length = this.#sequence.length;
    // The target's own token comes after the last candidate, so the guess can be one shorter.
    const room = Math.min(this.#end - 1 - length, this.#options.width * this.#scheduler.depth);
    if (room <= 0 || length === this.#missedAt) return;
    const found = propose(this.#sequence, room);
    this.#scheduler.recordHorizonRefill(found.length);
    if (found.length === 0) this.#missedAt = length;
    this.#sequence.push(...found);
  }

  #open(): void {
    const base = this.#unsent;
    // Where the first input is committed already it is no candidate, and the window has room for
    // one more: chunks do not overlap.
    const firstCandidate = Math.max(base, this.#committed);
    const end = Math.min(this.#sequence.length, firstCandidate + this.#options.width);
    const { id, prompt } = this.#options;
    const window = this.#scheduler.open(base, this.#committed - prompt.length);
    const verification = this.#chain.verify({
      type: 'window',
      generation: id,
      windowId: window.id,
      basePosition: base,
      tokens: this.#sequence.slice(base, end),
      trace: injectTraceContext(windowContext(this.#scheduler, window)),
    });
    // It is awaited in its turn; until then a failure is nobody's unhandled rejection.
    verification.catch(() => {});
    const proposedTokens = end - firstCandidate;
    this.#inFlight.push({ window, epoch: this.#epoch, end, proposedTokens, verification });
    this.#unsent = end;
  }

  async #takeReply(): Promise<void> {
    const oldest = this.#inFlight.shift();
    if (oldest === undefined)
      throw new Error('the generation has nothing in flight and is not done');
    const waitedFromMs = performance.now();
    const verification = await oldest.verification;
    if (oldest.epoch !== this.#epoch) this.#drain(verification, waitedFromMs);
    else this.#commit(oldest, verification);
  }

  /** A stale window is measured, and nothing of it is used. */
  #drain(verification: Verification, waitedFromMs: number): void {
    this.#scheduler.completeNext(verification.windowId, { stale: true });
    this.#scheduler.recordStaleExecution({
      drainMs: performance.now() - waitedFromMs,
      stage0ComputeMs: verification.stage0ComputeMs,
      forwardWriteMs: verification.forwardWriteMs,
      downstreamWaitMs: verification.downstreamWaitMs,
      verifyElapsedMs: verification.elapsedMs,
    });
  }

  /**
   * Commits what the target reproduced, and its own token after that. The prediction after the
   * window's last token decides on the first candidate of the next window, which may be on its
   * way already.
   */
  #commit(flight: InFlight, { windowId, predictions }: Verification): void {
    const { window, end, proposedTokens } = flight;
    const firstCandidate = end - proposedTokens;
    const alreadyCommitted = this.#committedAtMs.length;
    let rejectedAt: number | undefined;
    for (let position = window.basePosition + 1; position <= end; position++) {
      const target = predictions[position - window.basePosition - 1] as number;
      const guess = this.#sequence[position];
      this.#sequence[position] = target;
      this.#committed = position + 1;
      if (position < this.#end) this.#committedAtMs.push(performance.now());
      if (guess !== undefined && guess !== target) {
        rejectedAt = position;
        break;
      }
    }
    this.#observed.tokensCommitted(this.#committedAtMs.length - alreadyCommitted);
    const acceptedTokens = Math.min(rejectedAt ?? end, end) - firstCandidate;
    this.#scheduler.completeNext(windowId, { proposedTokens, acceptedTokens });
    if (rejectedAt !== undefined) this.#diverge();
  }

  /** Lets go of the guess; what is in flight of it has become stale. */
  #diverge(): void {
    this.#sequence.length = this.#committed;
    this.#unsent = this.#committed - 1;
    this.#missedAt = -1;
    this.#newEpoch();
  }

  #newEpoch(): void {
    const stale = this.#inFlight.filter(({ epoch }) => epoch === this.#epoch);
    this.#epoch++;
    this.#scheduler.markRecoveryEpoch(stale.length);
  }

  /** The end of the generation leaves windows in flight: they are drained like any stale ones. */
  async #stop(): Promise<void> {
    if (this.#inFlight.some(({ epoch }) => epoch === this.#epoch)) this.#newEpoch();
    while (this.#inFlight.length > 0) await this.#takeReply();
    this.#chain.end(this.#options.id);
  }
}
