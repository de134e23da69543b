/** What travels down the chain, from stage to stage in order. */
export type ForwardMessage =
  /** A generation begins; its prompt, but for the last token, is prefilled. */
  | { readonly type: 'begin'; readonly generation: number; readonly prompt: readonly number[] }
  | WindowMessage
  /** A generation is over, and its state can go. */
  | { readonly type: 'end'; readonly generation: number };

export interface WindowMessage {
  readonly type: 'window';
  readonly generation: number;
  readonly windowId: number;
  /** Position of the first token in the sequence. What a stage had from there on is void. */
  readonly basePosition: number;
  readonly tokens: readonly number[];
}

/** What the last stage sends straight to the coordinator. */
export interface Predictions {
  readonly type: 'predictions';
  readonly generation: number;
  readonly windowId: number;
  /** The target's next token after each token of the window. */
  readonly predictions: readonly number[];
}

/** The first message on a connection to a stage says what the connection is for. */
export interface Hello {
  readonly type: 'hello';
  readonly purpose: 'upstream' | 'prediction_sink';
}

/** Between the coordinator and the stage processes that it started. */
export interface StageControl {
  readonly type: 'start';
  readonly stage: number;
  readonly stageMs: number;
  readonly linkMs: number;
  /** Where the next stage listens; absent for the last one. */
  readonly nextPort?: number;
  /** Where the last stage is to open the reverse fallback; absent where a sink will be opened. */
  readonly reverseReturnPort?: number;
}
export interface StageReady {
  readonly type: 'ready';
  readonly port: number;
}

/** Exit code of a stage that stopped because a neighbour was gone: the fault is not its own. */
export const NEIGHBOUR_GONE = 75;
