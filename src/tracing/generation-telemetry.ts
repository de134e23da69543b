import {
  type Attributes,
  type Context,
  context,
  INVALID_SPAN_CONTEXT,
  type MeterProvider,
  ROOT_CONTEXT,
  type Span,
  trace,
} from '@opentelemetry/api';
import {
  ATTR_ERROR_TYPE,
  ATTR_GEN_AI_OPERATION_NAME,
  ATTR_GEN_AI_PROVIDER_NAME,
  ATTR_GEN_AI_REQUEST_MODEL,
  ATTR_GEN_AI_RESPONSE_MODEL,
  ATTR_GEN_AI_USAGE_OUTPUT_TOKENS,
  ATTR_LLAMA_STAGE_GENERATION_OUTCOME,
} from '../../semconv/attributes.js';
import {
  type HistogramInstrument,
  INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION,
  INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
  INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
} from '../../semconv/instruments.js';
import { SPAN_LLAMA_STAGE_GENERATION } from '../../semconv/spans.js';
import { type AttributeSet, DEFAULT_MAX_ATTRIBUTE_SETS, requireLimit } from '../attribute-sets.js';
import { Guard } from '../guard.js';
import type { HistogramBackend, HistogramRecorder } from '../histograms/histogram-backend.js';
import { countValue, type GenerationCounts, type Hub, HubSource } from '../metrics/hub.js';
import type { VerifyWindowMetrics } from '../metrics/verify-window-metrics.js';
import { addCount, isCount } from '../scheduler/counts.js';
import { isAnyoneListening } from '../scheduler/discovery.js';
import {
  VerifyWindowScheduler,
  type VerifyWindowSchedulerOptions,
} from '../scheduler/scheduler.js';
import { follow, goesOn } from './follow.js';
import { ABANDONED, CANCELLED, COMPLETED, endBy, endSpan, type WorkEnd } from './outcome.js';
import { SpanClock } from './span-clock.js';
import {
  TracerSource,
  VerifyWindowTracer,
  type VerifyWindowTracerOptions,
} from './verify-window-tracer.js';
import type { OpenSpans } from './window-spans.js';

export interface GenerationTelemetryOptions
  extends Omit<VerifyWindowTracerOptions, 'requireParentSpan'> {
  /** `gen_ai.provider.name`: who provides the model. Default: `llama_stage`. */
  readonly providerName?: string;
  /** The bridge that counts the generations' schedulers; none where they are counted elsewhere. */
  readonly metrics?: VerifyWindowMetrics;
  /** For the `gen_ai.server.*` histograms. Default: the global provider. */
  readonly meterProvider?: MeterProvider;
  /** How these histograms are recorded. Default: on the meter. */
  readonly histograms?: HistogramBackend;
  /** How many different attribute sets are kept apart. Default: 100. */
  readonly maxAttributeSets?: number;
}

export interface GenerationOptions extends VerifyWindowSchedulerOptions {
  /** `gen_ai.operation.name`. Default: `text_completion`. */
  readonly operationName?: string;
  /**
   * `gen_ai.request.model`: the model that the request asked for. It becomes an attribute of
   * metrics, so do not pass on any text that a client may send.
   */
  readonly requestModel?: string;
  /** `gen_ai.response.model`: the model that answers. */
  readonly responseModel?: string;
  /** Further attributes of this generation's metrics, its scheduler's included: few, and bounded. */
  readonly metricAttributes?: Attributes;
}

/**
 * One generation under way. Its methods may be taken out of the object. The first of `end`, `fail`
 * and `cancel` ends it, and closes its scheduler; what comes later does nothing.
 */
export interface Generation {
  readonly scheduler: VerifyWindowScheduler;
  /** The `llama_stage.generation` span, to add to it. One that does not record if it is not sampled. */
  readonly span: Span;
  /** The context with that span, for what belongs below it: `context.with(generation.context, …)`. */
  readonly context: Context;
  /** Takes note of tokens that were committed just now. What is not a count of tokens is ignored. */
  readonly tokensCommitted: (count: number) => void;
  /** It came to its end. */
  readonly end: () => void;
  /** It ended by an error. An AbortError counts as `cancel`. */
  readonly fail: (error: unknown) => void;
  /** It was called off, by the client or the server: no error. */
  readonly cancel: () => void;
  /** Ends it, if nothing else has: after an error in a `using` block, call `fail` before. */
  [Symbol.dispose](): void;
}

/** What `run` gives: the stream or promise of `decode` itself, a promise of anything else. */
export type RunResult<Result> = Result extends
  | PromiseLike<unknown>
  | AsyncIterable<unknown>
  | Generator
  ? Result
  : Promise<Result>;

/**
 * Observes whole generations of a coordinator: for each, a `llama_stage.generation` span with a
 * span for every window; `llama_stage.generation.count`, by how it ended; and
 * `gen_ai.server.request.duration`, `gen_ai.server.time_to_first_token` and
 * `gen_ai.server.time_per_output_token`, in seconds, as the GenAI conventions define them: the
 * first with the `error.type` of a generation that failed, the others only of those that completed.
 *
 * A generation that never ends, and whose scheduler is garbage-collected, counts as abandoned. Where
 * the telemetry itself fails, that is reported once through the API's `diag`, and the generation
 * goes on.
 */
export class GenerationTelemetry {
  readonly #providerName: string;
  readonly #metrics: VerifyWindowMetrics | undefined;
  readonly #spans: TracerSource;
  readonly #windows: VerifyWindowTracer;
  readonly #recorder: GenerationRecorder;
  readonly #guard = new Guard('observing a generation failed');

  /** @throws {VerifyWindowError} `invalid_argument` for a limit out of its range. */
  constructor(options?: GenerationTelemetryOptions) {
    const { histograms, meterProvider, metrics, providerName = 'llama_stage' } = options ?? {};
    const { maxAttributeSets = DEFAULT_MAX_ATTRIBUTE_SETS, tracerProvider } = options ?? {};
    requireLimit(maxAttributeSets);
    this.#providerName = providerName;
    this.#metrics = metrics;
    this.#spans = new TracerSource(tracerProvider);
    this.#windows = new VerifyWindowTracer(options);
    const source = new HubSource(meterProvider, histograms);
    this.#recorder = new GenerationRecorder(source, maxAttributeSets, this.#guard);
  }

  /**
   * Begins a generation below the active span, with a scheduler of its own.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a scheduler that cannot be.
   */
  start(options: GenerationOptions): Generation {
    const attributes = this.#attributesOf(options);
    const outside = context.active();
    const clock = SpanClock.asTheSdk();
    const span =
      this.#guard.run(() =>
        this.#spans.tracer.startSpan(
          SPAN_LLAMA_STAGE_GENERATION,
          { attributes, startTime: clock.startTime },
          outside,
        ),
      ) ?? trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
    const { metricAttributes } = options ?? {};
    const labels = new Labels(metricAttributes, attributes);
    const record = new GenerationRecord(this.#recorder, span, clock, labels);
    const inside = trace.setSpan(outside, span);
    let scheduler: VerifyWindowScheduler;
    try {
      // Those who are told of a new scheduler are to see its generation.
      scheduler = isAnyoneListening()
        ? context.with(inside, () => new VerifyWindowScheduler(options))
        : new VerifyWindowScheduler(options);
    } catch (error) {
      record.end(endBy(error));
      throw error;
    }
    const openSpans = this.#windows.observe(scheduler, inside);
    record.openSpans = openSpans;
    if (openSpans !== undefined) openSpans.generation = record;
    else abandoned.register(scheduler, record, record);
    this.#guard.run(() => this.#metrics?.observe(scheduler, metricAttributes));
    return new GenerationInProgress(scheduler, inside, record);
  }

  /**
   * Runs the decode loop of one generation inside its span. The generation ends when the loop has
   * returned or thrown; where it returned a promise or a stream, when that has.
   *
   * @returns what `decode` returns: the promise or the stream itself, and a promise of anything
   * else. It rejects with what `decode` threw, and the span says what kind of error it was; with a
   * {@link VerifyWindowError} `invalid_argument` for a scheduler that cannot be.
   *
   * A rejection counts as handled once it was seen here: the promise that you get is for you to
   * await.
   */
  run<Result>(
    options: GenerationOptions,
    decode: (generation: Generation) => Result,
  ): RunResult<Result> {
    try {
      const generation = this.start(options) as GenerationInProgress;
      const result = follow(
        () => decode(generation),
        (act) => context.with(generation.context, act),
        (end) => generation.finish(end),
      );
      return (goesOn(result) ? result : Promise.resolve(result)) as RunResult<Result>;
    } catch (error) {
      return Promise.reject(error) as RunResult<Result>;
    }
  }

  #attributesOf(options: GenerationOptions): Attributes {
    const { operationName = 'text_completion', requestModel, responseModel } = options ?? {};
    return {
      [ATTR_GEN_AI_OPERATION_NAME]: operationName,
      [ATTR_GEN_AI_PROVIDER_NAME]: this.#providerName,
      ...(requestModel !== undefined && { [ATTR_GEN_AI_REQUEST_MODEL]: requestModel }),
      ...(responseModel !== undefined && { [ATTR_GEN_AI_RESPONSE_MODEL]: responseModel }),
    };
  }
}

/** Ends the generations without spans whose schedulers were garbage-collected. */
const abandoned = new FinalizationRegistry<GenerationRecord>((record) => record.abandon());

class GenerationInProgress implements Generation {
  readonly scheduler: VerifyWindowScheduler;
  readonly context: Context;
  readonly #record: GenerationRecord;

  constructor(scheduler: VerifyWindowScheduler, inside: Context, record: GenerationRecord) {
    this.scheduler = scheduler;
    this.context = inside;
    this.#record = record;
  }

  get span(): Span {
    return this.#record.span;
  }

  // Bound where they are read, as they may be taken out of the object.

  get tokensCommitted() {
    return (count: number): void => this.#record.tokensCommitted(count);
  }

  get end() {
    return (): void => this.finish(COMPLETED);
  }

  get fail() {
    return (error: unknown): void => this.finish(endBy(error));
  }

  get cancel() {
    return (): void => this.finish(CANCELLED);
  }

  finish(end: WorkEnd): void {
    abandoned.unregister(this.#record);
    this.scheduler.close();
    this.#record.end(end);
  }

  [Symbol.dispose](): void {
    this.end();
  }
}

/**
 * What is recorded of a generation when it ends. It refers neither to its scheduler nor to a context,
 * which may hold the request and with it the scheduler: so it can outlive them.
 */
class GenerationRecord {
  readonly span: Span;
  openSpans: OpenSpans | undefined;
  readonly #recorder: GenerationRecorder;
  readonly #clock: SpanClock;
  readonly #labels: Labels;
  readonly #startedAt = performance.now();
  #commits = 0;
  #tokens = 0;
  #firstAt = 0;
  #lastAt = 0;
  #hasEnded = false;

  constructor(recorder: GenerationRecorder, span: Span, clock: SpanClock, labels: Labels) {
    this.#recorder = recorder;
    this.span = span;
    this.#clock = clock;
    this.#labels = labels;
    recorder.begin(labels);
  }

  tokensCommitted(count: number): void {
    if (!isCount(count) || count === 0 || this.#hasEnded) return;
    this.#lastAt = performance.now();
    if (this.#commits === 0) this.#firstAt = this.#lastAt;
    this.#commits++;
    this.#tokens = addCount(this.#tokens, count);
    this.#recorder.countTokens(count, this.#labels);
  }

  /** Its scheduler was garbage-collected. */
  abandon(): void {
    this.end(ABANDONED);
  }

  end(end: WorkEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const tokens = this.#tokens;
    this.#recorder.record(this.#labels, end, this.span, {
      duration: secondsBetween(this.#startedAt, performance.now()),
      firstToken: tokens > 0 ? secondsBetween(this.#startedAt, this.#firstAt) : undefined,
      // Tokens that all came in one commit have no time between them.
      perToken:
        this.#commits > 1
          ? Math.max(0, this.#lastAt - this.#firstAt) / (tokens - 1) / 1000
          : undefined,
    });
    this.#recorder.guard.run(() => {
      this.span.setAttribute(ATTR_LLAMA_STAGE_GENERATION_OUTCOME, end.outcome);
      this.span.setAttribute(ATTR_GEN_AI_USAGE_OUTPUT_TOKENS, tokens);
      if (this.openSpans !== undefined) this.#clock.include(this.openSpans.lastEndMs);
      endSpan(this.span, end, this.#clock.end());
    });
  }
}

/** A clock that was set back, as those of tests are, has measured no time. */
function secondsBetween(fromMs: number, toMs: number): number {
  return Math.max(0, toMs - fromMs) / 1000;
}

/** The attributes of one generation's metrics, and the set that stands for them where they were last seen. */
class Labels {
  readonly #given: Attributes | undefined;
  readonly #own: Attributes;
  #hub: Hub | undefined;
  #set: AttributeSet | undefined;

  /**
   * @param given those of the host.
   * @param own those of the conventions.
   */
  constructor(given: Attributes | undefined, own: Attributes) {
    this.#given = given;
    this.#own = own;
  }

  setOn(hub: Hub, maxAttributeSets: number): AttributeSet {
    if (this.#set === undefined || this.#hub !== hub) {
      this.#hub = hub;
      this.#set = hub.generationSets.get(this.#given, maxAttributeSets, this.#own);
    }
    return this.#set;
  }
}

/** How long a generation took, in seconds. */
interface GenerationTimes {
  readonly duration: number;
  readonly firstToken: number | undefined;
  readonly perToken: number | undefined;
}

/** The recorders of one attribute set. */
interface GenerationSeries {
  /** By outcome, and by the type of the error. */
  readonly durations: Map<string, HistogramRecorder>;
  readonly firstToken: HistogramRecorder;
  readonly perToken: HistogramRecorder;
}

/** Records what generations came to. */
class GenerationRecorder {
  readonly guard: Guard;
  readonly #source: HubSource;
  readonly #maxAttributeSets: number;
  #series = new Map<AttributeSet, GenerationSeries>();
  #seriesOf: HistogramBackend | undefined;

  constructor(source: HubSource, maxAttributeSets: number, guard: Guard) {
    this.#source = source;
    this.#maxAttributeSets = maxAttributeSets;
    this.guard = guard;
  }

  /** The series of a generation are there from its beginning, so that their first rise shows. */
  begin(labels: Labels): void {
    this.guard.run(() => this.#countsOf(labels));
  }

  countTokens(count: number, labels: Labels): void {
    this.guard.run(() => {
      const counts = this.#countsOf(labels);
      counts.outputTokens = addCount(counts.outputTokens, count);
    });
  }

  record(labels: Labels, end: WorkEnd, span: Span, times: GenerationTimes): void {
    this.guard.run(() => {
      const { hub } = this.#source;
      const set = labels.setOn(hub, this.#maxAttributeSets);
      countValue(hub.generationCounts(set).outcomes, end.outcome);
      const exemplar = trace.setSpan(ROOT_CONTEXT, span);
      const series = this.#seriesFor(set);
      this.#durationsOf(series, hub, set, end).record(times.duration, exemplar);
      if (end.outcome !== 'completed') return;
      if (times.firstToken !== undefined) series.firstToken.record(times.firstToken, exemplar);
      if (times.perToken !== undefined) series.perToken.record(times.perToken, exemplar);
    });
  }

  #countsOf(labels: Labels): GenerationCounts {
    const { hub } = this.#source;
    return hub.generationCounts(labels.setOn(hub, this.#maxAttributeSets));
  }

  #seriesFor(set: AttributeSet): GenerationSeries {
    const { histograms } = this.#source;
    if (histograms !== this.#seriesOf) {
      this.#series = new Map();
      this.#seriesOf = histograms;
    }
    let series = this.#series.get(set);
    if (series === undefined) {
      const recorder = (instrument: HistogramInstrument) =>
        histograms.recorder(instrument, set.attributes);
      series = {
        durations: new Map(),
        firstToken: recorder(INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN),
        perToken: recorder(INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN),
      };
      this.#series.set(set, series);
    }
    return series;
  }

  #durationsOf(
    { durations }: GenerationSeries,
    hub: Hub,
    set: AttributeSet,
    end: WorkEnd,
  ): HistogramRecorder {
    const { outcome } = end;
    const errorType = end.errorType && hub.errorTypeOf(set, end.errorType);
    const key = errorType === undefined ? outcome : `${outcome} ${errorType}`;
    let recorder = durations.get(key);
    if (recorder === undefined) {
      recorder = this.#source.histograms.recorder(INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION, {
        ...set.attributes,
        [ATTR_LLAMA_STAGE_GENERATION_OUTCOME]: outcome,
        ...(errorType !== undefined && { [ATTR_ERROR_TYPE]: errorType }),
      });
      durations.set(key, recorder);
    }
    return recorder;
  }
}
