import type { Attributes, MeterProvider, TracerProvider } from '@opentelemetry/api';
import { merged } from './attribute-sets.js';
import type { HistogramBackend } from './histograms/histogram-backend.js';
import { VerifyWindowMetrics } from './metrics/verify-window-metrics.js';
import type { ReportedStats } from './scheduler/response-timings.js';
import type { VerifyWindowScheduler } from './scheduler/scheduler.js';
import {
  type Generation,
  type GenerationOptions,
  GenerationTelemetry,
  type RunResult,
} from './tracing/generation-telemetry.js';
import { type StageIdentity, StageTelemetry } from './tracing/stage-telemetry.js';
import { VerifyWindowTracer } from './tracing/verify-window-tracer.js';
import type { WindowSpanHook } from './tracing/window-spans.js';

export interface PipelineTelemetryOptions {
  /** Where spans go. Default: the global provider, also one that is registered later. */
  readonly tracerProvider?: TracerProvider;
  /** Where metrics go. Default: the global provider, also one that is registered later. */
  readonly meterProvider?: MeterProvider;
  /**
   * How histograms are recorded. By default on the meter; `PreaggregatedHistograms` of
   * `llama-stage-otel/producer` costs a small part of that.
   */
  readonly histograms?: HistogramBackend;
  /** Go onto every metric: few, and bounded. Who the worker is belongs in its resource. */
  readonly metricAttributes?: Attributes;
  /** How many different attribute sets are kept apart. Default: 100. */
  readonly maxAttributeSets?: number;
  /** `gen_ai.provider.name`: who provides the model. Default: `llama_stage`. */
  readonly providerName?: string;
  /** How many windows of a generation get a span whatever becomes of them. Default: 1000. */
  readonly maxWindowSpans?: number;
  /** Called with each window span before it ends, to add to it. What it throws is reported. */
  readonly onWindowSpan?: WindowSpanHook;
  /**
   * Whether the phases of a stage are spans of their own, or attributes of its window's span: then a
   * window has 5 spans in four stages, and not 13. Default: `spans`.
   */
  readonly phases?: 'spans' | 'attributes';
}

/** A generation that has not begun. */
export interface GenerationPlan {
  /**
   * Begins it below the active span, for code that ends it elsewhere.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a scheduler that cannot be.
   */
  start(): Generation;
  /**
   * Runs its decode loop; see `GenerationTelemetry.run`.
   *
   * @returns what `decode` returns: the promise or the stream itself, a promise of anything else.
   */
  run<Result>(decode: (generation: Generation) => Result): RunResult<Result>;
}

/**
 * The metrics and the traces of a pipeline: of a coordinator, of a stage, of both in one process.
 * One of these serves the whole process. It emits nothing before an SDK is registered, and never
 * throws into the code that it observes.
 *
 * @example
 * const telemetry = new PipelineTelemetry();
 * // a coordinator
 * await telemetry.generation({ depth: 4 }).run(async ({ scheduler, tokensCommitted }) => {
 *   const window = scheduler.open(basePosition, decodeStep);
 *   send(window.id, candidates, injectTraceContext(windowContext(scheduler, window)));
 *   const reply = await nextReply();
 *   scheduler.completeNext(reply.windowId, { proposedTokens: 8, acceptedTokens: 5 });
 *   tokensCommitted(6);
 * });
 * // a stage
 * const stage = telemetry.stage({ index: 1 });
 * await stage.window(message.trace, ({ compute }) => compute(() => forward(message)));
 */
export class PipelineTelemetry {
  readonly #options: PipelineTelemetryOptions;
  readonly #metrics: VerifyWindowMetrics;
  readonly #tracer: VerifyWindowTracer;
  readonly #generations: GenerationTelemetry;

  /** @throws {VerifyWindowError} `invalid_argument` for a limit out of its range. */
  constructor(options?: PipelineTelemetryOptions) {
    this.#options = options ?? {};
    this.#metrics = new VerifyWindowMetrics(options);
    this.#tracer = new VerifyWindowTracer(options);
    this.#generations = new GenerationTelemetry({ ...options, metrics: this.#metrics });
  }

  /** A generation of a coordinator, with a scheduler of its own. */
  generation(options: GenerationOptions): GenerationPlan {
    const own = this.#options.metricAttributes;
    const all =
      own === undefined
        ? options
        : { ...options, metricAttributes: merged(own, options?.metricAttributes) };
    return {
      start: () => this.#generations.start(all),
      run: (decode) => this.#generations.run(all, decode),
    };
  }

  /**
   * A stage of this process.
   *
   * @throws {VerifyWindowError} `invalid_argument` for an identity that cannot be, and for `phases`
   * that are neither `spans` nor `attributes`.
   */
  stage(identity: StageIdentity): StageTelemetry {
    return new StageTelemetry({ ...this.#options, ...identity });
  }

  /**
   * Counts and traces a scheduler that your own code makes, below the active span. One that is
   * observed already stays as it is.
   *
   * @param attributes go onto every metric of this scheduler: few, and bounded.
   */
  observe(scheduler: VerifyWindowScheduler, attributes: Attributes = {}): void {
    this.#metrics.observe(scheduler, merged(this.#options.metricAttributes, attributes));
    this.#tracer.observe(scheduler);
  }

  /**
   * Counts that the output of a generation was compared with that of a serial control, token for token
   * (question 9): by `llama_stage.generation.control_comparisons`.
   *
   * @param isEqual whether every token was the same.
   * @throws {VerifyWindowError} `invalid_argument` for what is neither true nor false.
   */
  recordControlComparison(isEqual: boolean, attributes: Attributes = {}): void {
    const own = this.#options.metricAttributes;
    this.#metrics.recordControlComparison(isEqual, merged(own, attributes));
  }

  /**
   * Counts a finished generation of which only the statistics are known, as `parseResponseTimings`
   * gives them, for a proxy or a client that never held the scheduler.
   *
   * @throws {VerifyWindowError} `invalid_argument` where the statistics contradict themselves.
   */
  recordGeneration(stats: ReportedStats | undefined, attributes: Attributes = {}): void {
    this.#metrics.recordGeneration(stats, merged(this.#options.metricAttributes, attributes));
  }
}
