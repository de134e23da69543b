import * as v from 'valibot';

const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const time = v.pipe(v.number(), v.finite());
const tokens = v.pipe(v.array(count), v.readonly());

const interval = v.object({ from: time, to: time });

/** A window's stay at a stage. Milliseconds of the clock that all processes share. */
const visit = v.object({
  /** When it had come over the link. */
  arrivedAt: time,
  compute: interval,
  /** When the stage began to write it, or the answer to it, on. */
  sentAt: time,
});

/** A generation begins; its prompt, but for the last token, is prefilled. */
const begin = v.object({ type: v.literal('begin'), generation: count, prompt: tokens });

/** A generation is over, and its state can go. */
const end = v.object({ type: v.literal('end'), generation: count });

const window = v.object({
  type: v.literal('window'),
  generation: count,
  windowId: count,
  /** Position of the first token in the sequence. What a stage had from there on is void. */
  basePosition: count,
  tokens,
  /** Trace context of the window's span, so that the stages' spans become its children. */
  trace: v.record(v.string(), v.string()),
});

/** The stages that a message comes from, stage 0 first. */
const travelled = v.object({ visits: v.pipe(v.array(visit), v.readonly()) });

/** The last stage's answer to a window: the target's next token after each token of it. */
const predictions = v.object({
  type: v.literal('predictions'),
  generation: count,
  windowId: count,
  predictions: tokens,
});

/** What travels down the chain, from stage to stage in order. */
export const forwardMessage = v.variant('type', [
  begin,
  v.object({ ...window.entries, ...travelled.entries }),
  end,
]);

/** What the last stage sends straight to the coordinator. */
export const returnMessage = v.object({ ...predictions.entries, ...travelled.entries });

/** The first message on every connection says what it is for, and proves that it is of this run. */
export const hello = v.object({
  type: v.literal('hello'),
  purpose: v.picklist(['upstream', 'prediction_sink', 'prediction_return']),
  proof: v.string(),
});

/** From the coordinator to the stage processes that it started. */
export const stageControl = v.variant('type', [
  v.object({
    type: v.literal('start'),
    stage: count,
    /** Length of the chain. */
    stages: count,
    stageMs: v.number(),
    linkMs: v.number(),
    hasTelemetry: v.boolean(),
    /** The coordinator's; each stage finds its own from it. */
    prometheusPort: count,
    /** What every connection of this run has to prove. */
    secret: v.string(),
    /** Where the next stage listens; absent for the last one. */
    nextPort: v.optional(count),
    /** Where the last stage is to open the reverse fallback; absent where a sink will be opened. */
    reverseReturnPort: v.optional(count),
  }),
  /** Asks whether it still answers. */
  v.object({ type: v.literal('ping') }),
  v.object({ type: v.literal('stop') }),
]);

/** From a stage process to the coordinator. */
export const stageReply = v.variant('type', [
  v.object({ type: v.literal('ready'), port: count, metricsUrl: v.optional(v.string()) }),
  /** It cannot start as it was told to, for the reason that the message gives. */
  v.object({ type: v.literal('unusable'), message: v.string() }),
  v.object({ type: v.literal('pong'), cpuMs: v.number() }),
  /** Somebody sent a signal, maybe to all processes of the run. */
  v.object({ type: v.literal('signalled'), signal: v.string() }),
  /** It cannot go on. */
  v.object({ type: v.literal('failed'), message: v.string() }),
]);

export type Begin = Readonly<v.InferOutput<typeof begin>>;
export type End = Readonly<v.InferOutput<typeof end>>;
export type Window = Readonly<v.InferOutput<typeof window>>;
export type Visit = Readonly<v.InferOutput<typeof visit>>;
export type Travelled = Readonly<v.InferOutput<typeof travelled>>;
export type Predictions = Readonly<v.InferOutput<typeof predictions>>;
export type ForwardMessage = Readonly<v.InferOutput<typeof forwardMessage>>;
export type ReturnMessage = Readonly<v.InferOutput<typeof returnMessage>>;
export type Hello = Readonly<v.InferOutput<typeof hello>>;
export type StageControl = Readonly<v.InferOutput<typeof stageControl>>;
export type StartStage = Extract<StageControl, { type: 'start' }>;
export type StageReply = Readonly<v.InferOutput<typeof stageReply>>;

/** Exit code of a stage that stopped because a neighbour was gone: the fault is not its own. */
export const NEIGHBOUR_GONE = 75;
