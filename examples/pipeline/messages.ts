import type { TraceCarrier } from 'llama-stage-otel';
import type { Interval } from './intervals.js';

/** A generation begins; its prompt, but for the last token, is prefilled. */
export interface Begin {
  readonly type: 'begin';
  readonly generation: number;
  readonly prompt: readonly number[];
}

/** A generation is over, and its state can go. */
export interface End {
  readonly type: 'end';
  readonly generation: number;
}

export interface Window {
  readonly type: 'window';
  readonly generation: number;
  readonly windowId: number;
  /** Position of the first token in the sequence. What a stage had from there on is void. */
  readonly basePosition: number;
  readonly tokens: readonly number[];
  /** Trace context of the window's span, so that the stages' spans become its children. */
  readonly trace: TraceCarrier;
}

/** A window's stay at a stage. Milliseconds of the clock that all processes share. */
export interface Visit {
  /** When it had come over the link. */
  readonly arrivedAt: number;
  readonly compute: Interval;
  /** When the stage began to write it, or the answer to it, on. */
  readonly sentAt: number;
}

/** A message that says where it has been. */
export interface Travelled {
  /** The stages that it comes from, stage 0 first. */
  readonly visits: readonly Visit[];
}

/** What travels down the chain, from stage to stage in order. */
export type ForwardMessage = Begin | (Window & Travelled) | End;

/** The last stage's answer to a window. */
export interface Predictions {
  readonly type: 'predictions';
  readonly generation: number;
  readonly windowId: number;
  /** The target's next token after each token of the window. */
  readonly predictions: readonly number[];
}

/** What the last stage sends straight to the coordinator. */
export type ReturnMessage = Predictions & Travelled;

/** The first message on a connection to a stage says what the connection is for. */
export interface Hello {
  readonly type: 'hello';
  readonly purpose: 'upstream' | 'prediction_sink';
}

/** From the coordinator to the stage processes that it started. */
export interface StageControl {
  readonly type: 'start';
  readonly stage: number;
  /** Length of the chain. */
  readonly stages: number;
  readonly stageMs: number;
  readonly linkMs: number;
  /** The coordinator's; each stage finds its own from it. */
  readonly prometheusPort: number;
  /** Where the next stage listens; absent for the last one. */
  readonly nextPort?: number;
  /** Where the last stage is to open the reverse fallback; absent where a sink will be opened. */
  readonly reverseReturnPort?: number;
}

/** The answer of a stage process. */
export type StageReply =
  | { readonly type: 'ready'; readonly port: number; readonly metricsUrl: string }
  /** It cannot start as it was told to, for the reason that the message gives. */
  | { readonly type: 'unusable'; readonly message: string };

/** Exit code of a stage that stopped because a neighbour was gone: the fault is not its own. */
export const NEIGHBOUR_GONE = 75;
