import {
  type Attributes,
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
import { FollowedHistograms } from '../metrics/followed-histograms.js';
import type { VerifyWindowMetrics } from '../metrics/verify-window-metrics.js';
import { addCount, isCount } from '../scheduler/quantities.js';
import {
  VerifyWindowScheduler,
  type VerifyWindowSchedulerOptions,
} from '../scheduler/scheduler.js';
import { errorTypeOf, markFailed } from './failure.js';
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
  readonly onWindowSpan?: WindowSpanHook;
}

export interface GenerationOptions extends VerifyWindowSchedulerOptions {
  /** `gen_ai.operation.name`. Default: `text_completion`. */
  readonly operationName?: string;
  /** `gen_ai.request.model`: the model that the request asked for. */
  readonly requestModel?: string;
  /** `gen_ai.response.model`: the model that answers. */
  readonly responseModel?: string;
  /** Attributes of the scheduler's metrics: few, and bounded. */
  readonly attributes?: Attributes;
}

/** What the coordinator's decode loop gets. */
export interface GenerationInProgress {
  readonly scheduler: VerifyWindowScheduler;
  /** Takes note of tokens that were committed just now. */
  tokensCommitted(count: number): void;
}

/**
 * Observes whole generations of a coordinator: for each, a `llama_stage.generation` span with a
 * span for every window, and `gen_ai.server.request.duration`, `gen_ai.server.time_to_first_token`
 * and `gen_ai.server.time_per_output_token`, in seconds, as the GenAI conventions define them.
 */
export class GenerationTelemetry {
  readonly #providerName: string;
  readonly #metrics: VerifyWindowMetrics | undefined;
  readonly #source: TracerSource;
  readonly #windows: VerifyWindowTracer;
  readonly #histograms: FollowedHistograms<keyof typeof INSTRUMENTS>;

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
   * closed when the loop has ended.
   *
   * @returns what `decode` returns. What it throws is thrown again, and marks the span as failed.
   * @throws {VerifyWindowError} `invalid_argument` for a scheduler that cannot be.
   */
  async run<Result>(
    options: GenerationOptions,
    decode: (generation: GenerationInProgress) => Result | Promise<Result>,
  ): Promise<Result> {
    const attributes = this.#attributesOf(options);
    const clock = new SpanClock();
    const span = this.#source.tracer.startSpan(SPAN_LLAMA_STAGE_GENERATION, {
      attributes,
      startTime: clock.now(),
    });
    const inSpan = trace.setSpan(context.active(), span);
    const startedAt = performance.now();
    let progress: Progress | undefined;
    let failure: { readonly error: unknown } | undefined;
    try {
      return await context.with(inSpan, () => {
        const scheduler = new VerifyWindowScheduler(options);
        progress = new Progress(scheduler, startedAt);
        this.#windows.observe(scheduler, inSpan);
        this.#metrics?.observe(scheduler, options.attributes);
        return decode(progress);
      });
    } catch (error) {
      failure = { error };
      throw error;
    } finally {
      progress?.scheduler.close();
      if (failure !== undefined) markFailed(span, failure.error);
      this.#record(attributes, startedAt, progress, failure);
      span.end(clock.now());
    }
  }

  #record(
    attributes: Attributes,
    startedAt: number,
    progress: Progress | undefined,
    failure: { readonly error: unknown } | undefined,
  ): void {
    this.#histograms.get('requestDuration').record((performance.now() - startedAt) / 1000, {
      ...attributes,
      ...(failure !== undefined && { [ATTR_ERROR_TYPE]: errorTypeOf(failure.error) }),
    });
    if (failure !== undefined || progress === undefined) return;
    const { timeToFirstToken, timePerOutputToken } = progress;
    if (timeToFirstToken !== undefined) {
      this.#histograms.get('timeToFirstToken').record(timeToFirstToken, attributes);
    }
    if (timePerOutputToken !== undefined) {
      this.#histograms.get('timePerOutputToken').record(timePerOutputToken, attributes);
    }
  }

  #attributesOf(options: GenerationOptions): Attributes {
    const { operationName = 'text_completion', requestModel, responseModel } = options;
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
