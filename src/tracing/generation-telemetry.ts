import {
  type Attributes,
  type Context,
  context,
  type Meter,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import {
  ATTR_ERROR_TYPE,
  ATTR_GEN_AI_OPERATION_NAME,
  ATTR_GEN_AI_PROVIDER_NAME,
  ATTR_GEN_AI_REQUEST_MODEL,
  ATTR_GEN_AI_RESPONSE_MODEL,
} from '../../semconv/attributes.js';
import {
  INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION,
  INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
  INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
} from '../../semconv/instruments.js';
import { SPAN_LLAMA_STAGE_GENERATION } from '../../semconv/spans.js';
import { Guard } from '../guard.js';
import { FollowedHistograms } from '../metrics/followed-histograms.js';
import type { VerifyWindowMetrics } from '../metrics/verify-window-metrics.js';
import { addCount, isCount } from '../scheduler/quantities.js';
import {
  VerifyWindowScheduler,
  type VerifyWindowSchedulerOptions,
} from '../scheduler/scheduler.js';
import { endSpan, errorTypeOf } from './failure.js';
import { SpanClock } from './span-clock.js';
import { TracerSource } from './tracer-source.js';
import { VerifyWindowTracer } from './verify-window-tracer.js';
import type { WindowSpanHook } from './window-spans.js';

export interface GenerationTelemetryOptions {
  /** `gen_ai.provider.name`: who provides the model. Default: `llama_stage`. */
  readonly providerName?: string;
  /** The bridge that counts the generations' schedulers; none where they are counted elsewhere. */
  readonly metrics?: VerifyWindowMetrics;
  /** For the `gen_ai.server.*` histograms. Default: the global provider's. */
  readonly meter?: Meter;
  /** Default: the global provider. */
  readonly tracerProvider?: TracerProvider;
  /**
   * Called with each window span before it ends, to add to it. What it throws is reported once,
   * through the API's `diag`.
   */
  readonly onWindowSpan?: WindowSpanHook;
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

/** What the coordinator's decode loop gets. */
export interface GenerationInProgress {
  readonly scheduler: VerifyWindowScheduler;
  /** Takes note of tokens that were committed just now. What is no count of tokens is ignored. */
  tokensCommitted(count: number): void;
}

/**
 * Observes whole generations of a coordinator: for each, a `llama_stage.generation` span with a
 * span for every window, and `gen_ai.server.request.duration`, `gen_ai.server.time_to_first_token`
 * and `gen_ai.server.time_per_output_token`, in seconds, as the GenAI conventions define them: the
 * first with the `error.type` of a generation that failed, the others only of those that did not.
 *
 * Where the telemetry itself fails, that is reported once through the API's `diag`, and the
 * generation goes on.
 *
 * @example
 * const generations = new GenerationTelemetry({ metrics });
 * await generations.run({ depth: 4 }, async ({ scheduler, tokensCommitted }) => {
 *   const window = scheduler.open(basePosition, decodeStep);
 *   send(window.id, candidates, injectTraceContext(windowContext(scheduler, window)));
 *   const reply = await nextReply();
 *   scheduler.completeNext(reply.windowId, { proposedTokens: 8, acceptedTokens: 5 });
 *   tokensCommitted(6);
 * });
 */
export class GenerationTelemetry {
  readonly #providerName: string;
  readonly #metrics: VerifyWindowMetrics | undefined;
  readonly #source: TracerSource;
  readonly #windows: VerifyWindowTracer;
  readonly #histograms: FollowedHistograms<keyof typeof INSTRUMENTS>;
  readonly #guard = new Guard('observing a generation failed');

  constructor(options: GenerationTelemetryOptions = {}) {
    const { meter, metrics, onWindowSpan, providerName = 'llama_stage', tracerProvider } = options;
    this.#providerName = providerName;
    this.#metrics = metrics;
    this.#source = new TracerSource(tracerProvider);
    this.#windows = new VerifyWindowTracer({
      ...(tracerProvider !== undefined && { tracerProvider }),
      ...(onWindowSpan !== undefined && { onWindowSpan }),
    });
    this.#histograms = new FollowedHistograms(INSTRUMENTS, meter);
  }

  /**
   * Runs the decode loop of one generation inside its span, with a scheduler of its own that is
   * closed when the loop has ended, however it did.
   *
   * @returns what `decode` returns. What it throws is thrown again, and the span says what kind of
   * error it was.
   * @throws {VerifyWindowError} `invalid_argument` for a scheduler that cannot be.
   */
  async run<Result>(
    options: GenerationOptions,
    decode: (generation: GenerationInProgress) => Result | Promise<Result>,
  ): Promise<Result> {
    const attributes = this.#attributesOf(options);
    const startedAt = performance.now();
    const clock = new SpanClock();
    const outside = context.active();
    const span = this.#guard.run(() =>
      this.#source.tracer.startSpan(
        SPAN_LLAMA_STAGE_GENERATION,
        { attributes, startTime: clock.now() },
        outside,
      ),
    );
    const inside = span === undefined ? outside : trace.setSpan(outside, span);
    let progress: Progress | undefined;
    let errorType: string | undefined;
    try {
      return await context.with(inside, () => {
        const scheduler = new VerifyWindowScheduler(options);
        progress = new Progress(scheduler, startedAt);
        this.#windows.observe(scheduler, inside);
        this.#guard.run(() => this.#metrics?.observe(scheduler, options.metricAttributes));
        return decode(progress);
      });
    } catch (error) {
      errorType = errorTypeOf(error);
      throw error;
    } finally {
      const durationMs = performance.now() - startedAt;
      this.#guard.run(() => progress?.scheduler.close());
      this.#guard.run(() => {
        const metricAttributes = { ...options?.metricAttributes, ...attributes };
        this.#record(durationMs, progress, errorType, metricAttributes, inside);
      });
      this.#guard.run(() => endSpan(span, clock, errorType));
    }
  }

  #record(
    durationMs: number,
    progress: Progress | undefined,
    errorType: string | undefined,
    attributes: Attributes,
    inside: Context,
  ): void {
    const duration = this.#histograms.get('requestDuration');
    if (errorType !== undefined) {
      duration.record(durationMs / 1000, { ...attributes, [ATTR_ERROR_TYPE]: errorType }, inside);
      return;
    }
    duration.record(durationMs / 1000, attributes, inside);
    const { timeToFirstToken, timePerOutputToken } = progress ?? {};
    if (timeToFirstToken !== undefined) {
      this.#histograms.get('timeToFirstToken').record(timeToFirstToken, attributes, inside);
    }
    if (timePerOutputToken !== undefined) {
      this.#histograms.get('timePerOutputToken').record(timePerOutputToken, attributes, inside);
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

const INSTRUMENTS = {
  requestDuration: INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION,
  timeToFirstToken: INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
  timePerOutputToken: INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
};

class Progress implements GenerationInProgress {
  readonly scheduler: VerifyWindowScheduler;
  readonly #startedAt: number;
  #tokens = 0;
  #firstAt = 0;
  #lastAt = 0;

  constructor(scheduler: VerifyWindowScheduler, startedAt: number) {
    this.scheduler = scheduler;
    this.#startedAt = startedAt;
  }

  // A property, so that it may be taken out of the object.
  readonly tokensCommitted = (count: number): void => {
    if (!isCount(count) || count === 0) return;
    this.#lastAt = performance.now();
    if (this.#tokens === 0) this.#firstAt = this.#lastAt;
    this.#tokens = addCount(this.#tokens, count);
  };

  /** Seconds. */
  get timeToFirstToken(): number | undefined {
    return this.#tokens === 0 ? undefined : (this.#firstAt - this.#startedAt) / 1000;
  }

  /** Seconds for each token after the first. */
  get timePerOutputToken(): number | undefined {
    if (this.#tokens < 2) return undefined;
    return (this.#lastAt - this.#firstAt) / 1000 / (this.#tokens - 1);
  }
}
