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
import { Guard } from '../guard.js';
import { FollowedHistograms } from '../metrics/followed-histograms.js';
import { describe } from '../scheduler/describe.js';
import { VerifyWindowError } from '../scheduler/error.js';
import { isCount } from '../scheduler/quantities.js';
import { endSpan } from './failure.js';
import { settle } from './settle.js';
import { SpanClock } from './span-clock.js';
import { extractTraceContext, fieldsOf, type TraceCarrier } from './trace-carrier.js';
import { TracerSource } from './tracer-source.js';

export interface StageTelemetryOptions {
  /** `llama_stage.stage.index`: the place of the stage in the chain, from 0. */
  readonly index: number;
  /** `llama_stage.stage.id`: a name of the stage that tells nothing of its host. */
  readonly id?: string;
  /** `llama_stage.stage.layer_start`: the first layer of the stage, from 0. */
  readonly layerStart?: number;
  /** `llama_stage.stage.layer_end`: the layer after the last one of the stage. */
  readonly layerEnd?: number;
  /** For the stage histograms. Default: the global provider's. */
  readonly meter?: Meter;
  /** Default: the global provider. */
  readonly tracerProvider?: TracerProvider;
}

/** One window on its way through a stage. Each phase takes the code that it is. */
export interface StageWindow {
  /** What the next stage's message has to carry: the spans of all stages have the same parent. */
  readonly carrier: TraceCarrier;
  /** The stage computes its layers. */
  compute<Result>(act: () => Result): Result;
  /** The stage writes the window to the next one. */
  forwardWrite<Result>(act: () => Result): Result;
  /** The stage waits for the ones after it. */
  downstreamWait<Result>(act: () => Result): Result;
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
 * seconds. The histograms are recorded whether the trace is sampled or not, and whether the phase
 * fails or not; a window without a sampled trace gets no span at all.
 *
 * The code of a window and of its phases runs with their spans active. It may return a promise:
 * they last until it is settled. Where the telemetry itself fails, that is reported once through
 * the API's `diag`, and the work goes on.
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
  readonly #windowAttributes: Attributes;
  readonly #phaseAttributes: Attributes;
  readonly #guard = new Guard('observing a stage failed');

  /**
   * @throws {VerifyWindowError} `invalid_argument` for an index or a layer that is no count, for
   * layers that end before they start, and for an id that is no text.
   */
  constructor(options: StageTelemetryOptions) {
    const { id, index, layerEnd, layerStart, meter, tracerProvider } = options ?? {};
    requireCount('index', index);
    if (layerStart !== undefined) requireCount('layerStart', layerStart);
    if (layerEnd !== undefined) requireCount('layerEnd', layerEnd);
    if (layerStart !== undefined && layerEnd !== undefined && layerEnd < layerStart) {
      refuse(`layerEnd must be at least layerStart, ${layerStart}, got ${layerEnd}`);
    }
    if (id !== undefined && typeof id !== 'string') {
      refuse(`id must be a string, got ${describe(id)}`);
    }
    this.#source = new TracerSource(tracerProvider);
    this.#histograms = new FollowedHistograms(INSTRUMENTS, meter);
    this.#phaseAttributes = { [ATTR_LLAMA_STAGE_STAGE_INDEX]: index };
    this.#windowAttributes = {
      ...this.#phaseAttributes,
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
   * @returns what `work` returns. What it throws, or rejects with, is passed on, and the span says
   * what kind of error it was.
   */
  window<Result>(carrier: unknown, work: (window: StageWindow) => Result): Result {
    const parent = extractTraceContext(carrier);
    const clock = new SpanClock();
    const span = hasTrace(parent) ? this.#startWindowSpan(parent, clock) : undefined;
    // Also one that is not sampled: then what the host traces in here is not to be sampled either.
    const inside = span && trace.setSpan(parent, span);
    const phaseParent = span?.isRecording() ? inside : undefined;
    const phase =
      (name: Phase) =>
      <Output>(act: () => Output) =>
        this.#phase(name, phaseParent, clock, act);
    const window: StageWindow = {
      carrier: fieldsOf(carrier),
      compute: phase('compute'),
      forwardWrite: phase('forwardWrite'),
      downstreamWait: phase('downstreamWait'),
    };
    return settle(
      () => runIn(inside, () => work(window)),
      (errorType) => this.#guard.run(() => endSpan(span, clock, errorType)),
    );
  }

  #phase<Result>(
    phase: Phase,
    parent: Context | undefined,
    clock: SpanClock,
    act: () => Result,
  ): Result {
    const options = { attributes: this.#phaseAttributes };
    const span = parent && this.#startSpan(SPANS[phase], options, parent, clock);
    const inside = span && trace.setSpan(context.active(), span);
    const startedAt = performance.now();
    return settle(
      () => runIn(inside, act),
      (errorType) => {
        const seconds = (performance.now() - startedAt) / 1000;
        this.#guard.run(() => {
          this.#histograms.get(phase).record(seconds, this.#phaseAttributes, inside);
        });
        this.#guard.run(() => endSpan(span, clock, errorType));
      },
    );
  }

  #startWindowSpan(parent: Context, clock: SpanClock): Span | undefined {
    const options = { kind: SpanKind.SERVER, attributes: this.#windowAttributes };
    return this.#startSpan(SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW, options, parent, clock);
  }

  #startSpan(
    name: string,
    options: SpanOptions,
    parent: Context,
    clock: SpanClock,
  ): Span | undefined {
    return this.#guard.run(() =>
      this.#source.tracer.startSpan(name, { ...options, startTime: clock.now() }, parent),
    );
  }
}

function requireCount(name: string, value: unknown): void {
  if (!isCount(value)) {
    refuse(`${name} must be a non-negative safe integer, got ${describe(value)}`);
  }
}

function refuse(message: string): never {
  throw new VerifyWindowError('invalid_argument', message);
}

function hasTrace(from: Context): boolean {
  const spanContext = trace.getSpanContext(from);
  return spanContext !== undefined && trace.isSpanContextValid(spanContext);
}

function runIn<Result>(inside: Context | undefined, act: () => Result): Result {
  return inside === undefined ? act() : context.with(inside, act);
}
