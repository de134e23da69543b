/** Something whose cost for a window is measured. */
export interface Subject {
  readonly name: string;
  /** Opens and completes this many windows, one after the other. */
  run(windows: number): void;
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
