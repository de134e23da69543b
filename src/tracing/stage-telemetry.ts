import {
  type Attributes,
  type Context,
  context,
  type HrTime,
  type MeterProvider,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type SpanOptions,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import {
  ATTR_LLAMA_STAGE_STAGE_BATCH_SIZE,
  ATTR_LLAMA_STAGE_STAGE_COMPUTE_MS,
  ATTR_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_MS,
  ATTR_LLAMA_STAGE_STAGE_FORWARD_WRITE_MS,
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
import { DEFAULT_MAX_ATTRIBUTE_SETS, requireLimit } from '../attribute-sets.js';
import { Guard } from '../guard.js';
import type { HistogramBackend, HistogramRecorder } from '../histograms/histogram-backend.js';
import { HubSource } from '../metrics/hub.js';
import { isCount } from '../scheduler/counts.js';
import { refuseArgument } from '../scheduler/error.js';
import { follow, type RunInside } from './follow.js';
import { CANCELLED, COMPLETED, endBy, endSpan, type WorkEnd } from './outcome.js';
import { SpanClock } from './span-clock.js';
import { extractTraceContext, fieldsOf, type TraceCarrier } from './trace-carrier.js';
import { TracerSource } from './verify-window-tracer.js';

/** Which stage it is. */
export interface StageIdentity {
  /** `llama_stage.stage.index`: the place of the stage in the chain, from 0. */
  readonly index: number;
  /** `llama_stage.stage.id`: a name of the stage that tells nothing of its host. */
  readonly id?: string;
  /** `llama_stage.stage.layer_start`: the first layer of the stage, from 0. */
  readonly layerStart?: number;
  /** `llama_stage.stage.layer_end`: the layer after the last one of the stage. */
  readonly layerEnd?: number;
}

export interface StageTelemetryOptions extends StageIdentity {
  /** For the stage histograms. Default: the global provider. */
  readonly meterProvider?: MeterProvider;
  /** How these histograms are recorded. Default: on the meter. */
  readonly histograms?: HistogramBackend;
  /** How many stages and attribute sets of theirs are kept apart. Default: 100. */
  readonly maxAttributeSets?: number;
  /** Further attributes of the stage's metrics: few, and bounded. */
  readonly metricAttributes?: Attributes;
  /** Default: the global provider. */
  readonly tracerProvider?: TracerProvider;
  /**
   * `spans`: each phase is a span below the window's. `attributes`: its milliseconds are an attribute
   * of the window's span, so that a trace of four stages has 5 spans for each window and not 13.
   * Default: `spans`.
   */
  readonly phases?: 'spans' | 'attributes';
}

/**
 * One window on its way through a stage. Its methods may be taken out of the object. A phase takes
 * the code that it is, and lasts until that has returned or thrown; where it returned a promise or a
 * stream, until that has, but no longer than its window.
 */
export interface StageWindow {
  /** What the next stage's message has to carry: the spans of all stages have the same parent. */
  readonly carrier: TraceCarrier;
  /** The context of the window's span, for what belongs below it. */
  readonly context: Context;
  /** The window's span; `undefined` where the message carried no trace. */
  readonly span: Span | undefined;
  /** The stage computes its layers. */
  compute<Result>(act: () => Result): Result;
  /** The stage writes the window to the next one. */
  forwardWrite<Result>(act: () => Result): Result;
  /** The stage waits for the ones after it. */
  downstreamWait<Result>(act: () => Result): Result;
}

/**
 * A window that lasts until it is told that it has ended. The first of `end`, `fail` and `cancel`
 * ends it; what comes later does nothing.
 */
export interface StartedStageWindow extends StageWindow {
  /** The window was passed on. */
  end(): void;
  /** The work on it ended by an error. An AbortError counts as `cancel`. */
  fail(error: unknown): void;
  /** The work on it was called off: no error. */
  cancel(): void;
  /** Ends it, if nothing else has: after an error in a `using` block, call `fail` before. */
  [Symbol.dispose](): void;
}

const PHASES = {
  compute: {
    instrument: INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
    span: SPAN_LLAMA_STAGE_STAGE_COMPUTE,
    attribute: ATTR_LLAMA_STAGE_STAGE_COMPUTE_MS,
  },
  forwardWrite: {
    instrument: INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
    span: SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
    attribute: ATTR_LLAMA_STAGE_STAGE_FORWARD_WRITE_MS,
  },
  downstreamWait: {
    instrument: INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
    span: SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
    attribute: ATTR_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_MS,
  },
};

type Phase = keyof typeof PHASES;

/**
 * Observes the windows that pass through one stage: a `llama_stage.stage.verify_window` span below
 * the coordinator's, a span for each phase, and for each phase its histogram of durations in
 * seconds. The histograms are recorded whether the trace is sampled or not, and whether the phase
 * fails or not; a window without a sampled trace gets no span at all.
 *
 * The code of a window and of its phases runs with their spans active. Where the telemetry itself
 * fails, that is reported once through the API's `diag`, and the work goes on.
 *
 * @example
 * const stage = new StageTelemetry({ index: 1 });
 * await stage.window(message.trace, async (window) => {
 *   const activations = await window.compute(() => forward(message));
 *   await window.forwardWrite(() => next.write({ activations, trace: window.carrier }));
 * });
 */
export class StageTelemetry {
  readonly #spans: TracerSource;
  readonly #source: HubSource;
  readonly #maxAttributeSets: number;
  readonly #hasPhaseSpans: boolean;
  readonly #windowAttributes: Attributes;
  readonly #phaseAttributes: Attributes;
  readonly #metricAttributes: Attributes;
  readonly #guard = new Guard('observing a stage failed');
  #recorders: Partial<Record<Phase, HistogramRecorder>> = {};
  #recordersOf: HistogramBackend | undefined;

  /**
   * @throws {VerifyWindowError} `invalid_argument` for an index or a layer that is not a count, for
   * layers that end before they start, for an id that is not a string, and for `phases` that are
   * neither `spans` nor `attributes`, and for a limit out of its range.
   */
  constructor(options: StageTelemetryOptions) {
    const { id, index, layerEnd, layerStart, phases = 'spans' } = options ?? {};
    requireCount('index', index);
    if (layerStart !== undefined) requireCount('layerStart', layerStart);
    if (layerEnd !== undefined) requireCount('layerEnd', layerEnd);
    if (layerStart !== undefined && layerEnd !== undefined && layerEnd < layerStart) {
      refuseArgument('layerEnd', `at least layerStart, ${layerStart}`, layerEnd);
    }
    if (id !== undefined && typeof id !== 'string') refuseArgument('id', 'a string', id);
    if (phases !== 'spans' && phases !== 'attributes') {
      refuseArgument('phases', "'spans' or 'attributes'", phases);
    }
    const { maxAttributeSets = DEFAULT_MAX_ATTRIBUTE_SETS } = options;
    requireLimit(maxAttributeSets);
    this.#maxAttributeSets = maxAttributeSets;
    this.#spans = new TracerSource(options.tracerProvider);
    this.#source = new HubSource(options.meterProvider, options.histograms);
    this.#hasPhaseSpans = phases === 'spans';
    this.#phaseAttributes = { [ATTR_LLAMA_STAGE_STAGE_INDEX]: index };
    this.#metricAttributes = { ...options.metricAttributes, ...this.#phaseAttributes };
    this.#windowAttributes = {
      ...this.#phaseAttributes,
      ...(id !== undefined && { [ATTR_LLAMA_STAGE_STAGE_ID]: id }),
      ...(layerStart !== undefined && { [ATTR_LLAMA_STAGE_STAGE_LAYER_START]: layerStart }),
      ...(layerEnd !== undefined && { [ATTR_LLAMA_STAGE_STAGE_LAYER_END]: layerEnd }),
    };
  }

  /**
   * Works on one window, from its arrival until `work` has returned or thrown; where it returned a
   * promise or a stream, until that has.
   *
   * @param carrier what the message carried of trace context, as it came off the wire. Missing or
   * broken, it costs the spans and nothing else.
   * @returns what `work` returns, itself. What it throws, or rejects with, is passed on, and the
   * span says what kind of error it was. A rejection counts as handled once it was seen here: the
   * promise that you get is for you to await.
   */
  window<Result>(carrier: unknown, work: (window: StageWindow) => Result): Result {
    const window = this.#start(carrier);
    return follow(() => work(window), window.inside, window.finish);
  }

  /**
   * Begins the work on one window, for code that ends it elsewhere.
   *
   * @param carrier as {@link StageTelemetry.window} takes it.
   */
  startWindow(carrier: unknown): StartedStageWindow {
    return this.#start(carrier);
  }

  /**
   * Computes several windows in one pass. Each of them gets a compute span of the same start and
   * end, with `llama_stage.stage.batch_size`; the histogram records the pass once. `act` runs with
   * the first window's span active.
   *
   * @param windows windows under way in this stage.
   * @returns what `act` returns, itself.
   */
  computeBatch<Result>(windows: readonly StageWindow[], act: () => Result): Result {
    const own = [...new Set(windows)].filter((window) => window instanceof WindowInStage);
    return this.#runPhase('compute', own, act);
  }

  #start(carrier: unknown): WindowInStage {
    const parent = extractTraceContext(carrier);
    const clock = new SpanClock();
    const span = hasTrace(parent)
      ? this.#startSpan(
          SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
          { kind: SpanKind.SERVER, attributes: this.#windowAttributes, startTime: clock.now() },
          parent,
        )
      : undefined;
    return new WindowInStage(this.#runPhase, this.#guard, fieldsOf(carrier), span, parent, clock);
  }

  /** Runs one phase of one window, or of several together. */
  readonly #runPhase = <Result>(
    phase: Phase,
    windows: readonly WindowInStage[],
    act: () => Result,
  ): Result => {
    // One clock for all, so that the pass starts and ends at the same time in each trace.
    const clock = windows.find(({ isRecorded }) => isRecorded)?.clock;
    const startTime = clock?.now();
    const startedAt = performance.now();
    const pieces = windows.map((window) =>
      window.isRecorded
        ? this.#startPhaseSpan(phase, window, windows.length, startTime)
        : undefined,
    );
    const shown = pieces.find((span) => span !== undefined) ?? windows[0]?.span;
    const record = once(() => {
      const seconds = (performance.now() - startedAt) / 1000;
      this.#guard.run(() => this.#recorder(phase).record(seconds, exemplarOf(shown)));
    });
    let open = windows.length;
    const leaving = windows.map((window, index) => {
      let isOpen = true;
      const leave = (end: WorkEnd, endTime = clock?.now()) => {
        if (!isOpen) return;
        isOpen = false;
        window.openPhases.delete(leave);
        const span = pieces[index];
        this.#guard.run(() => {
          if (span !== undefined) endSpan(span, end, endTime);
          else if (window.isRecorded && !this.#hasPhaseSpans) {
            window.addPhase(phase, performance.now() - startedAt, windows.length);
          }
        });
        open--;
        if (open === 0) record(end);
      };
      window.openPhases.add(leave);
      return leave;
    });
    const finish = (end: WorkEnd) => {
      const endTime = clock?.now();
      for (const leave of leaving) leave(end, endTime);
      record(end);
    };
    return follow(act, runInside(shown && trace.setSpan(context.active(), shown)), finish);
  };

  #startPhaseSpan(
    phase: Phase,
    window: WindowInStage,
    batchSize: number,
    startTime: HrTime | undefined,
  ): Span | undefined {
    if (!this.#hasPhaseSpans) return undefined;
    const attributes =
      batchSize > 1
        ? { ...this.#phaseAttributes, [ATTR_LLAMA_STAGE_STAGE_BATCH_SIZE]: batchSize }
        : this.#phaseAttributes;
    const options = { attributes, ...(startTime !== undefined && { startTime }) };
    return this.#startSpan(PHASES[phase].span, options, window.context);
  }

  #startSpan(name: string, options: SpanOptions, parent: Context): Span | undefined {
    return this.#guard.run(() => this.#spans.tracer.startSpan(name, options, parent));
  }

  #recorder(phase: Phase): HistogramRecorder {
    const { hub, histograms } = this.#source;
    if (histograms !== this.#recordersOf) {
      this.#recorders = {};
      this.#recordersOf = histograms;
    }
    let recorder = this.#recorders[phase];
    if (recorder === undefined) {
      const { attributes } = hub.stageSets.get(this.#metricAttributes, this.#maxAttributeSets);
      recorder = histograms.recorder(PHASES[phase].instrument, attributes);
      this.#recorders[phase] = recorder;
    }
    return recorder;
  }
}

type RunPhase = <Result>(
  phase: Phase,
  windows: readonly WindowInStage[],
  act: () => Result,
) => Result;

class WindowInStage implements StartedStageWindow {
  readonly carrier: TraceCarrier;
  readonly span: Span | undefined;
  readonly context: Context;
  /** Also once it has ended: a phase may come late. */
  readonly isRecorded: boolean;
  readonly clock: SpanClock;
  readonly inside: RunInside;
  readonly openPhases = new Set<(end: WorkEnd) => void>();
  readonly #runPhase: RunPhase;
  readonly #guard: Guard;
  readonly #phaseMs: Partial<Record<Phase, number>> = {};

  constructor(
    runPhase: RunPhase,
    guard: Guard,
    carrier: TraceCarrier,
    span: Span | undefined,
    parent: Context,
    clock: SpanClock,
  ) {
    this.#runPhase = runPhase;
    this.#guard = guard;
    this.carrier = carrier;
    this.span = span;
    // Also one that is not sampled: then what the host traces in here is not to be sampled either.
    this.context = span === undefined ? parent : trace.setSpan(parent, span);
    this.isRecorded = span?.isRecording() === true;
    this.clock = clock;
    this.inside = runInside(span && this.context);
  }

  readonly compute = <Result>(act: () => Result) => this.#runPhase('compute', [this], act);
  readonly forwardWrite = <Result>(act: () => Result) =>
    this.#runPhase('forwardWrite', [this], act);
  readonly downstreamWait = <Result>(act: () => Result) =>
    this.#runPhase('downstreamWait', [this], act);

  readonly end = () => this.finish(COMPLETED);
  readonly fail = (error: unknown) => this.finish(endBy(error));
  readonly cancel = () => this.finish(CANCELLED);

  readonly finish = once((end) => {
    for (const finishPhase of this.openPhases) finishPhase(end.errorType ? COMPLETED : end);
    const { span } = this;
    if (span !== undefined) this.#guard.run(() => endSpan(span, end, this.clock.now()));
  });

  /** Notes a phase on the window's own span, where it has none of its own. */
  addPhase(phase: Phase, ms: number, batchSize: number): void {
    const total = (this.#phaseMs[phase] ?? 0) + ms;
    this.#phaseMs[phase] = total;
    this.span?.setAttribute(PHASES[phase].attribute, total);
    if (batchSize > 1) this.span?.setAttribute(ATTR_LLAMA_STAGE_STAGE_BATCH_SIZE, batchSize);
  }

  [Symbol.dispose](): void {
    this.end();
  }
}

function once(act: (end: WorkEnd) => void): (end: WorkEnd) => void {
  let isDone = false;
  return (end) => {
    if (isDone) return;
    isDone = true;
    act(end);
  };
}

/** The context that names a span to an exemplar. */
function exemplarOf(span: Span | undefined): Context | undefined {
  return span && trace.setSpan(ROOT_CONTEXT, span);
}

function requireCount(name: string, value: unknown): void {
  if (!isCount(value)) refuseArgument(name, 'a non-negative safe integer', value);
}

function hasTrace(from: Context): boolean {
  const spanContext = trace.getSpanContext(from);
  return spanContext !== undefined && trace.isSpanContextValid(spanContext);
}

function runInside(inside: Context | undefined): RunInside {
  return (act) => (inside === undefined ? act() : context.with(inside, act));
}
