/** Something whose cost is measured: for a window, or for a whole generation. */
export interface Subject {
  readonly name: string;
  /** Works on this many of them, one after the other. */
  run(count: number): void | Promise<void>;
  /** How many spans each makes. Default: 1. */
  readonly spansEach?: number;
  /** How many of each signal were exported; absent where nothing is. */
  exported?(): Promise<Record<SignalName, number> | { readonly spans: number }>;
}

/** The signals that one window of the workload makes, and that every peer has to make too. */
export const SIGNALS = {
  opened: 1,
  completed: 1,
  duration: 1,
  occupancy: 1,
  acceptedLength: 1,
  proposedTokens: 8,
  acceptedTokens: 5,
};

export type SignalName = keyof typeof SIGNALS;

/** What every window of the workload comes to. */
export const OUTCOME = {
  proposedTokens: SIGNALS.proposedTokens,
  acceptedTokens: SIGNALS.acceptedTokens,
};

export const DEPTH = 8;
