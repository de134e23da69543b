import {
  type Attributes,
  type Context,
  context,
  type Meter,
  type Span,
  SpanKind,
  type SpanOptions,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import {
  ATTR_LLAMA_STAGE_STAGE_ID,
  ATTR_LLAMA_STAGE_STAGE_INDEX,
  ATTR_LLAMA_STAGE_STAGE_LAYER_END,
  ATTR_LLAMA_STAGE_STAGE_LAYER_START,
} from '../../semconv/attributes.js';
import {
  INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
  INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
  INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
} from '../../semconv/instruments.js';
import {
  SPAN_LLAMA_STAGE_STAGE_COMPUTE,
  SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
  SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import { FollowedHistograms } from '../metrics/followed-histograms.js';
import { markFailed } from './failure.js';
import { SpanClock } from './span-clock.js';
import { extractTraceContext, type TraceCarrier } from './trace-carrier.js';
import { TracerSource } from './tracer-source.js';

export interface StageTelemetryOptions {
  /** `llama_stage.stage.index`: the place of the stage in the chain, from 0. */
  readonly index: number;
  /** `llama_stage.stage.id`: a name of the stage that tells nothing of its host. */
  readonly id?: string;
  /** First layer of the stage. */
  readonly layerStart?: number;
  /** Layer after the last one of the stage. */
  readonly layerEnd?: number;
  /** For the stage histograms. Default: the global provider's. */
  readonly meter?: Meter;
  /** Default: the global provider. */
  readonly tracerProvider?: TracerProvider;
}

const INSTRUMENTS = {
  compute: INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
  forwardWrite: INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
  downstreamWait: INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
};

type Phase = keyof typeof INSTRUMENTS;

const SPANS: Readonly<Record<Phase, string>> = {
  compute: SPAN_LLAMA_STAGE_STAGE_COMPUTE,
  forwardWrite: SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
  downstreamWait: SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
};

/**
 * Observes the windows that pass through one stage: a `llama_stage.stage.verify_window` span below
 * the coordinator's, a span for each phase, and for each phase its histogram of durations in
 * seconds. The histograms are recorded whether the trace is sampled or not; a window without a
 * sampled trace gets no span at all.
 *
 * @example
 * const stage = new StageTelemetry({ index: 1 });
 * await stage.window(message.trace, async (window) => {
 *   const activations = await window.compute(() => forward(message));
 *   await window.forwardWrite(() => next.write({ activations, trace: window.carrier }));
 * });
 */
export class StageTelemetry {
  readonly #source: TracerSource;
  readonly #histograms: FollowedHistograms<Phase>;
  readonly #attributes: Attributes;
  readonly #metricAttributes: Attributes;

  constructor(options: StageTelemetryOptions) {
    const { id, index, layerEnd, layerStart, meter, tracerProvider } = options;
    this.#source = new TracerSource(tracerProvider);
    this.#histograms = new FollowedHistograms(INSTRUMENTS, meter);
    this.#metricAttributes = { [ATTR_LLAMA_STAGE_STAGE_INDEX]: index };
    this.#attributes = {
      ...this.#metricAttributes,
      ...(id !== undefined && { [ATTR_LLAMA_STAGE_STAGE_ID]: id }),
      ...(layerStart !== undefined && { [ATTR_LLAMA_STAGE_STAGE_LAYER_START]: layerStart }),
      ...(layerEnd !== undefined && { [ATTR_LLAMA_STAGE_STAGE_LAYER_END]: layerEnd }),
    };
  }

  /**
   * Works on one window.
   *
   * @param carrier what the message carried of trace context, as it came off the wire. Missing or
   * broken, it costs the spans and nothing else.
   * @returns what `work` returns. What it throws, or rejects with, is passed on and marks the span
   * as failed.
   */
  window<Result>(carrier: unknown, work: (window: StageWindow) => Result): Result {
    const parent = extractTraceContext(carrier);
    const isTraced = trace.getSpanContext(parent) !== undefined;
    const span = isTraced ? this.#startWindowSpan(parent) : undefined;
    const window = new StageWindow(carrier, (phase, act) => this.#phase(phase, span, act));
    return settle(
      // A trace that is not sampled is still the one that spans of the host belong to.
      () =>
        isTraced ? context.with(span?.context ?? parent, work, undefined, window) : work(window),
      (failure) => endSpan(span, failure),
    );
  }

  #phase<Result>(phase: Phase, parent: ActiveSpan | undefined, act: () => Result): Result {
    const span = parent && this.#startSpan(SPANS[phase], parent.context, parent.clock);
    const startedAt = performance.now();
    return settle(
      () => (span === undefined ? act() : context.with(span.context, act)),
      (failure) => {
        const seconds = (performance.now() - startedAt) / 1000;
        this.#histograms.get(phase).record(seconds, this.#metricAttributes);
        endSpan(span, failure);
      },
    );
  }

  #startWindowSpan(parent: Context): ActiveSpan | undefined {
    const options = { kind: SpanKind.SERVER, attributes: this.#attributes };
    return this.#startSpan(SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW, parent, new SpanClock(), options);
  }

  /** Starts a span; nothing comes of one that is not recorded. */
  #startSpan(
    name: string,
    parent: Context,
    clock: SpanClock,
    options: SpanOptions = {},
  ): ActiveSpan | undefined {
    const span = this.#source.tracer.startSpan(
      name,
      { ...options, startTime: clock.now() },
      parent,
    );
    return span.isRecording() ? { span, clock, context: trace.setSpan(parent, span) } : undefined;
  }
}

/** A span that is recorded, and the context in which what belongs to it runs. */
interface ActiveSpan {
  readonly span: Span;
  readonly clock: SpanClock;
  readonly context: Context;
}

/** One window on its way through a stage. Each phase takes the code that it is. */
export class StageWindow {
  /** What the next stage's message has to carry: the spans of all stages have the same parent. */
  readonly carrier: TraceCarrier;
  readonly #phase: <Result>(phase: Phase, act: () => Result) => Result;

  /** Use {@link StageTelemetry.window}. */
  constructor(carrier: unknown, phase: <Result>(phase: Phase, act: () => Result) => Result) {
    this.carrier = typeof carrier === 'object' && carrier !== null ? (carrier as TraceCarrier) : {};
    this.#phase = phase;
  }

  /** The stage computes its layers. */
  compute<Result>(act: () => Result): Result {
    return this.#phase('compute', act);
  }

  /** The stage writes the window to the next one. */
  forwardWrite<Result>(act: () => Result): Result {
    return this.#phase('forwardWrite', act);
  }

  /** The stage waits for the ones after it. */
  downstreamWait<Result>(act: () => Result): Result {
    return this.#phase('downstreamWait', act);
  }
}

function endSpan(active: ActiveSpan | undefined, failure: Failure | undefined): void {
  if (active === undefined) return;
  if (failure !== undefined) markFailed(active.span, failure.error);
  active.span.end(active.clock.now());
}

interface Failure {
  readonly error: unknown;
}

/** Runs `act`, and calls `finish` when it has returned, thrown or settled. */
function settle<Result>(act: () => Result, finish: (failure?: Failure) => void): Result {
  let result: Result;
  try {
    result = act();
  } catch (error) {
    finish({ error });
    throw error;
  }
  if (!(result instanceof Promise)) {
    finish();
    return result;
  }
  return result.then(
    (value) => {
      finish();
      return value;
    },
    (error: unknown) => {
      finish({ error });
      throw error;
    },
  ) as Result;
}
