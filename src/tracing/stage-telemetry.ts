import {
  type Attributes,
  type Context,
  context,
  type HrTime,
  type MeterProvider,
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
import { follow } from './follow.js';
import { CANCELLED, COMPLETED, endBy, endSpan, type WorkEnd } from './outcome.js';
import { type Moment, SpanClock, toHrTime } from './span-clock.js';
import { extractFields, fieldsOf, type TraceCarrier } from './trace-carrier.js';
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
  readonly #stage: ObservedStage;

  /**
   * @throws {VerifyWindowError} `invalid_argument` for an index or a layer that is not a count, for
   * layers that end before they start, for an id that is not a string, and for `phases` that are
   * neither `spans` nor `attributes`, and for a limit out of its range.
   */
  constructor(options: StageTelemetryOptions) {
    this.#stage = new ObservedStage(options ?? {});
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
    const window = new WindowInStage(this.#stage, carrier);
    return follow(
      () => work(window),
      (act) => window.runInside(act),
      (end) => window.finish(end),
    );
  }

  /**
   * Begins the work on one window, for code that ends it elsewhere.
   *
   * @param carrier as {@link StageTelemetry.window} takes it.
   */
  startWindow(carrier: unknown): StartedStageWindow {
    return new WindowInStage(this.#stage, carrier);
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
    return runPhase(this.#stage, 'compute', own, act);
  }
}

/** What the windows of one stage have in common. */
class ObservedStage {
  readonly guard = new Guard('observing a stage failed');
  readonly hasPhaseSpans: boolean;
  readonly #spans: TracerSource;
  readonly #source: HubSource;
  readonly #maxAttributeSets: number;
  readonly #windowAttributes: Attributes;
  readonly #phaseAttributes: Attributes;
  readonly #metricAttributes: Attributes | undefined;
  #recorders: Partial<Record<Phase, HistogramRecorder>> = {};
  #recordersOf: HistogramBackend | undefined;

  constructor(options: StageTelemetryOptions) {
    const { id, index, layerEnd, layerStart, phases = 'spans' } = options;
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
    this.hasPhaseSpans = phases === 'spans';
    this.#phaseAttributes = { [ATTR_LLAMA_STAGE_STAGE_INDEX]: index };
    this.#metricAttributes = options.metricAttributes;
    this.#windowAttributes = {
      ...this.#phaseAttributes,
      ...(id !== undefined && { [ATTR_LLAMA_STAGE_STAGE_ID]: id }),
      ...(layerStart !== undefined && { [ATTR_LLAMA_STAGE_STAGE_LAYER_START]: layerStart }),
      ...(layerEnd !== undefined && { [ATTR_LLAMA_STAGE_STAGE_LAYER_END]: layerEnd }),
    };
  }

  startWindowSpan(startTime: HrTime, parent: Context): Span | undefined {
    return this.#startSpan(
      SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
      { kind: SpanKind.SERVER, attributes: this.#windowAttributes, startTime },
      parent,
    );
  }

  /** @param batchSize how many windows the phase works on. */
  startPhaseSpan(
    phase: Phase,
    batchSize: number,
    startTime: HrTime,
    parent: Context,
  ): Span | undefined {
    const attributes =
      batchSize > 1
        ? { ...this.#phaseAttributes, [ATTR_LLAMA_STAGE_STAGE_BATCH_SIZE]: batchSize }
        : this.#phaseAttributes;
    return this.#startSpan(PHASES[phase].span, { attributes, startTime }, parent);
  }

  #startSpan(name: string, options: SpanOptions, parent: Context): Span | undefined {
    return this.guard.run(() => this.#spans.tracer.startSpan(name, options, parent));
  }

  /** @param inside the context with the span that an exemplar names. */
  record(phase: Phase, seconds: number, inside: Context): void {
    this.guard.run(() => this.#recorder(phase).record(seconds, inside));
  }

  #recorder(phase: Phase): HistogramRecorder {
    const { hub, histograms } = this.#source;
    if (histograms !== this.#recordersOf) {
      this.#recorders = {};
      this.#recordersOf = histograms;
    }
    let recorder = this.#recorders[phase];
    if (recorder === undefined) {
      const { attributes } = hub.stageSets.get(
        this.#metricAttributes,
        this.#maxAttributeSets,
        this.#phaseAttributes,
      );
      recorder = histograms.recorder(PHASES[phase].instrument, attributes);
      this.#recorders[phase] = recorder;
    }
    return recorder;
  }
}

class WindowInStage implements StartedStageWindow {
  readonly carrier: TraceCarrier;
  readonly span: Span | undefined;
  readonly context: Context;
  /** Of a window with a span. */
  readonly clock: SpanClock | undefined;
  /** Also once it has ended: a phase may come late. */
  readonly isRecorded: boolean;
  readonly openPasses: Pass[] = [];
  readonly #stage: ObservedStage;
  readonly #isTraced: boolean;
  #phaseMs: Partial<Record<Phase, number>> | undefined;
  #hasEnded = false;

  constructor(stage: ObservedStage, carrier: unknown) {
    this.#stage = stage;
    this.carrier = fieldsOf(carrier);
    const parent = extractFields(this.carrier);
    const from = trace.getSpanContext(parent);
    this.#isTraced = from !== undefined && trace.isSpanContextValid(from);
    this.clock = this.#isTraced ? SpanClock.fromNow() : undefined;
    this.span = this.clock && stage.startWindowSpan(this.clock.startTime, parent);
    // Also one that is not sampled: then what the host traces in here is not to be sampled either.
    this.context = this.span === undefined ? parent : trace.setSpan(parent, this.span);
    this.isRecorded = this.span?.isRecording() === true;
  }

  /** Runs the host's code with the window's trace, if it has one. */
  runInside<Result>(act: () => Result): Result {
    return this.#isTraced ? context.with(this.context, act) : act();
  }

  // Bound where they are read, as they may be taken out of the object.

  get compute() {
    return <Result>(act: () => Result) => runPhase(this.#stage, 'compute', [this], act);
  }

  get forwardWrite() {
    return <Result>(act: () => Result) => runPhase(this.#stage, 'forwardWrite', [this], act);
  }

  get downstreamWait() {
    return <Result>(act: () => Result) => runPhase(this.#stage, 'downstreamWait', [this], act);
  }

  get end() {
    return () => this.finish(COMPLETED);
  }

  get fail() {
    return (error: unknown) => this.finish(endBy(error));
  }

  get cancel() {
    return () => this.finish(CANCELLED);
  }

  finish(end: WorkEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    // A phase did not fail because its window did.
    const endOfPhases = end.errorType === undefined ? end : COMPLETED;
    for (const pass of [...this.openPasses]) pass.leave(this, endOfPhases);
    const { span } = this;
    if (span !== undefined) this.#stage.guard.run(() => endSpan(span, end, this.clock?.end()));
  }

  /** Notes a phase on the window's own span, where it has none of its own. */
  addPhase(phase: Phase, ms: number, batchSize: number): void {
    this.#phaseMs ??= {};
    const total = (this.#phaseMs[phase] ?? 0) + ms;
    this.#phaseMs[phase] = total;
    this.span?.setAttribute(PHASES[phase].attribute, total);
    if (batchSize > 1) this.span?.setAttribute(ATTR_LLAMA_STAGE_STAGE_BATCH_SIZE, batchSize);
  }

  [Symbol.dispose](): void {
    this.finish(COMPLETED);
  }
}

/** Runs one phase of one window, or of several together. */
function runPhase<Result>(
  stage: ObservedStage,
  phase: Phase,
  windows: readonly WindowInStage[],
  act: () => Result,
): Result {
  const pass = new Pass(stage, phase, windows, context.active());
  return follow(
    act,
    (run) => pass.runInside(run),
    (end) => pass.finish(end),
  );
}

/** One pass through a phase. It goes on when one of several windows has left it. */
class Pass {
  readonly #outside: Context;
  /** The context with the span that is active in it. */
  readonly #inside: Context;
  readonly #stage: ObservedStage;
  readonly #phase: Phase;
  readonly #windows: readonly WindowInStage[];
  /** The phase's own spans, by window. */
  #spans: Map<WindowInStage, Span> | undefined;
  /** One for all, so that the pass starts and ends at the same time in each trace. */
  readonly #start: Moment | undefined;
  readonly #startedAt: number;
  #isRecorded = false;
  #open: number;

  constructor(
    stage: ObservedStage,
    phase: Phase,
    windows: readonly WindowInStage[],
    outside: Context,
  ) {
    this.#stage = stage;
    this.#phase = phase;
    this.#windows = windows;
    this.#open = windows.length;
    this.#start = startOf(windows);
    const startTime = this.#start && toHrTime(this.#start.wallMs);
    this.#startedAt = performance.now();
    let shown: Span | undefined;
    for (const window of windows) {
      window.openPasses.push(this);
      if (startTime === undefined || !window.isRecorded || !stage.hasPhaseSpans) continue;
      const span = stage.startPhaseSpan(phase, windows.length, startTime, window.context);
      if (span === undefined) continue;
      this.#spans ??= new Map();
      this.#spans.set(window, span);
      shown ??= span;
    }
    const [first] = windows;
    shown ??= first && trace.getSpan(first.context);
    this.#outside = outside;
    this.#inside =
      shown === undefined || shown === trace.getSpan(outside)
        ? outside
        : trace.setSpan(outside, shown);
  }

  runInside<Result>(act: () => Result): Result {
    return this.#inside === this.#outside ? act() : context.with(this.#inside, act);
  }

  /** Ends it for one of its windows; for the last one that is in it, as a whole. */
  leave(window: WindowInStage, end: WorkEnd, endMs = this.#endOf(window)): void {
    const place = window.openPasses.lastIndexOf(this);
    if (place < 0) return;
    window.openPasses.splice(place, 1);
    if (window.isRecorded) this.#endSpan(window, end, endMs);
    this.#open--;
    if (this.#open === 0) this.#record();
  }

  #endOf({ clock }: WindowInStage): number | undefined {
    return this.#start && clock?.endOfChild(this.#start);
  }

  #endSpan(window: WindowInStage, end: WorkEnd, endMs: number | undefined): void {
    const span = this.#spans?.get(window);
    this.#stage.guard.run(() => {
      if (span !== undefined && endMs !== undefined) {
        window.clock?.include(endMs);
        endSpan(span, end, toHrTime(endMs));
      } else if (!this.#stage.hasPhaseSpans) {
        window.addPhase(this.#phase, this.#passedMs(), this.#windows.length);
      }
    });
  }

  finish(end: WorkEnd): void {
    const recorded = this.#windows.find(({ isRecorded }) => isRecorded);
    const endMs = recorded && this.#endOf(recorded);
    for (const window of this.#windows) this.leave(window, end, endMs);
    this.#record();
  }

  #record(): void {
    if (this.#isRecorded) return;
    this.#isRecorded = true;
    this.#stage.record(this.#phase, this.#passedMs() / 1000, this.#inside);
  }

  /** A clock that was set back, as those of tests are, has measured no time. */
  #passedMs(): number {
    return Math.max(0, performance.now() - this.#startedAt);
  }
}

/** Now, but not before any of the windows arrived; of none that is recorded there is no time. */
function startOf(windows: readonly WindowInStage[]): Moment | undefined {
  let start: Moment | undefined;
  for (const { clock, isRecorded } of windows) {
    if (clock === undefined || !isRecorded) continue;
    const own = clock.startOfChild();
    if (start === undefined || own.wallMs > start.wallMs) start = own;
  }
  return start;
}

function requireCount(name: string, value: unknown): void {
  if (!isCount(value)) refuseArgument(name, 'a non-negative safe integer', value);
}
