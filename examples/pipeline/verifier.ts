import type { Window } from './messages.js';

/** What a generation asks of the stages, however they are reached. */
export interface Verifier {
  /** Whether the predictions come over a sink that the coordinator opened. */
  readonly upstreamOpened: boolean;
  begin(generation: number, prompt: readonly number[]): void;
  end(generation: number): void;
  /** Sends a window down the chain; the answers of a generation come in the order of its windows. */
  verify(window: Window): Promise<Verification>;
}

/** The answer to a window, and where its time went. Milliseconds. */
export interface Verification {
  /** The window that the reply names: whether it is the one to come next is for the scheduler. */
  readonly windowId: number;
  readonly predictions: readonly number[];
  readonly stage0ComputeMs: number;
  readonly forwardWriteMs: number;
  readonly downstreamWaitMs: number;
  /** From handing the window over to its answer, queues included. */
  readonly elapsedMs: number;
}
