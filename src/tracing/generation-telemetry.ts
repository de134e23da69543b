import {
  type Attributes,
  type Context,
  context,
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
  ATTR_LLAMA_STAGE_GENERATION_OUTCOME,
} from '../../semconv/attributes.js';
import {
  INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION,
  INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
  INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
  INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT,
} from '../../semconv/instruments.js';
import { SPAN_LLAMA_STAGE_GENERATION } from '../../semconv/spans.js';
import { DEFAULT_MAX_ATTRIBUTE_SETS, requireLimit } from '../attribute-sets.js';
import { Guard } from '../guard.js';
import type { HistogramBackend } from '../histograms/histogram-backend.js';
import { HubSource } from '../metrics/hub.js';
import type { VerifyWindowMetrics } from '../metrics/verify-window-metrics.js';
import { addCount, isCount } from '../scheduler/counts.js';
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
  readonly #source: HubSource;
  readonly #maxAttributeSets: number;
  readonly #guard = new Guard('observing a generation failed');

  /** @throws {VerifyWindowError} `invalid_argument` for a limit out of its range. */
  constructor(options: GenerationTelemetryOptions = {}) {
    const { histograms, meterProvider, metrics, providerName = 'llama_stage' } = options;
    const { maxAttributeSets = DEFAULT_MAX_ATTRIBUTE_SETS } = options;
    requireLimit(maxAttributeSets);
    this.#maxAttributeSets = maxAttributeSets;
    this.#providerName = providerName;
    this.#metrics = metrics;
    this.#spans = new TracerSource(options.tracerProvider);
    this.#windows = new VerifyWindowTracer(options);
    this.#source = new HubSource(meterProvider, histograms);
  }

  /**
   * Begins a generation below the active span, with a scheduler of its own.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a scheduler that cannot be.
   */
  start(options: GenerationOptions): Generation {
    const attributes = this.#attributesOf(options);
    const outside = context.active();
    const clock = new SpanClock();
    const span =
      this.#guard.run(() =>
        this.#spans.tracer.startSpan(
          SPAN_LLAMA_STAGE_GENERATION,
          { attributes, startTime: clock.now() },
          outside,
        ),
      ) ?? trace.wrapSpanContext({ traceId: '', spanId: '', traceFlags: 0 });
    const metricAttributes = { ...options?.metricAttributes, ...attributes };
    const record = new GenerationRecord(
      this.#source,
      this.#guard,
      span,
      clock,
      metricAttributes,
      this.#maxAttributeSets,
    );
    const inside = trace.setSpan(outside, span);
    let scheduler: VerifyWindowScheduler;
    try {
      scheduler = context.with(inside, () => new VerifyWindowScheduler(options));
    } catch (error) {
      record.end(endBy(error));
      throw error;
    }
    record.openSpans = this.#windows.observe(scheduler, inside);
    this.#guard.run(() => this.#metrics?.observe(scheduler, options.metricAttributes));
    abandoned.register(scheduler, record, record);
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
        generation.finish,
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

/** Ends the generations whose schedulers were garbage-collected. */
const abandoned = new FinalizationRegistry<GenerationRecord>((record) => {
  record.openSpans?.abandon();
  record.end(ABANDONED);
});

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

  readonly tokensCommitted = (count: number): void => this.#record.tokensCommitted(count);
  readonly end = (): void => this.finish(COMPLETED);
  readonly fail = (error: unknown): void => this.finish(endBy(error));
  readonly cancel = (): void => this.finish(CANCELLED);

  readonly finish = (end: WorkEnd): void => {
    abandoned.unregister(this.#record);
    this.scheduler.close();
    this.#record.end(end);
  };

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
  readonly #source: HubSource;
  readonly #guard: Guard;
  readonly #clock: SpanClock;
  readonly #attributes: Attributes;
  readonly #maxAttributeSets: number;
  readonly #startedAt = performance.now();
  #tokens = 0;
  #firstAt = 0;
  #lastAt = 0;
  #hasEnded = false;

  constructor(
    source: HubSource,
    guard: Guard,
    span: Span,
    clock: SpanClock,
    attributes: Attributes,
    maxAttributeSets: number,
  ) {
    this.#maxAttributeSets = maxAttributeSets;
    this.#source = source;
    this.#guard = guard;
    this.span = span;
    this.#clock = clock;
    this.#attributes = attributes;
  }

  tokensCommitted(count: number): void {
    if (!isCount(count) || count === 0) return;
    this.#lastAt = performance.now();
    if (this.#tokens === 0) this.#firstAt = this.#lastAt;
    this.#tokens = addCount(this.#tokens, count);
  }

  end(end: WorkEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const durationMs = performance.now() - this.#startedAt;
    this.#guard.run(() => this.#record(durationMs, end));
    this.#guard.run(() => {
      this.span.setAttribute(ATTR_LLAMA_STAGE_GENERATION_OUTCOME, end.outcome);
      endSpan(this.span, end, this.#clock.now());
    });
  }

  #record(durationMs: number, { outcome, errorType }: WorkEnd): void {
    const { hub, histograms } = this.#source;
    const exemplar = trace.setSpan(ROOT_CONTEXT, this.span);
    const set = hub.generationSets.get(this.#attributes, this.#maxAttributeSets);
    const attributes = { ...set.attributes, [ATTR_LLAMA_STAGE_GENERATION_OUTCOME]: outcome };
    hub.add(INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT, 1, attributes, exemplar);
    histograms
      .recorder(
        INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION,
        errorType === undefined ? attributes : { ...attributes, [ATTR_ERROR_TYPE]: errorType },
      )
      .record(durationMs / 1000, exemplar);
    if (outcome !== 'completed' || this.#tokens === 0) return;
    const firstTokenMs = this.#firstAt - this.#startedAt;
    histograms
      .recorder(INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN, set.attributes)
      .record(firstTokenMs / 1000, exemplar);
    if (this.#tokens < 2) return;
    const msPerToken = (this.#lastAt - this.#firstAt) / (this.#tokens - 1);
    histograms
      .recorder(INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN, set.attributes)
      .record(msPerToken / 1000, exemplar);
  }
}
