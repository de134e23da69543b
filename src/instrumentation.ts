import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import {
  type Attributes,
  type Context,
  context,
  type MeterProvider,
  ROOT_CONTEXT,
  type TracerProvider,
} from '@opentelemetry/api';
import { Guard } from './guard.js';
import { DEFAULT_MAX_ATTRIBUTE_SETS } from './metrics/attribute-sets.js';
import { VerifyWindowMetrics } from './metrics/verify-window-metrics.js';
import type { HistogramBackend } from './metrics/window-histograms.js';
import { SCHEDULER_CHANNEL, type SchedulerCreated } from './scheduler/channel.js';
import type { VerifyWindowScheduler } from './scheduler/scheduler.js';
import { unannouncedSchedulers } from './scheduler/unannounced.js';
import { SCOPE_NAME, SCOPE_VERSION } from './scope.js';
import { VerifyWindowTracer } from './tracing/verify-window-tracer.js';
import type { WindowSpanHook } from './tracing/window-spans.js';

export interface VerifyWindowInstrumentationConfig {
  /** Whether the constructor enables it. Default: true. */
  enabled?: boolean;
  /** Whether metrics are recorded. Default: true. */
  metrics?: boolean;
  /** Whether windows get spans. Default: true. */
  spans?: boolean;
  /**
   * Whether windows are traced only where a span was active when their scheduler was made.
   * Without one, each window is a trace of its own. Default: true.
   */
  requireParentSpan?: boolean;
  /** Called with each window span before it ends, to add to it. What it throws is reported. */
  onWindowSpan?: WindowSpanHook;
  /**
   * Attributes of a scheduler's metrics, few and bounded; called once for each, where it is made.
   * What it throws is reported. Default: none.
   */
  metricAttributes?: (scheduler: VerifyWindowScheduler) => Attributes;
  /** How many sets of these attributes are kept apart. Default: 100. */
  maxAttributeSets?: number;
}

export interface VerifyWindowInstrumentationOptions extends VerifyWindowInstrumentationConfig {
  /** How histograms are recorded, for good: see `VerifyWindowMetricsOptions`. */
  histograms?: HistogramBackend;
}

/** The configuration with its defaults. */
type Config = VerifyWindowInstrumentationConfig &
  Required<Pick<VerifyWindowInstrumentationConfig, 'enabled' | 'metrics' | 'spans'>>;

/** The schedulers that an instrumentation counts: with two of them, nothing counts twice. */
const counted = new WeakSet<VerifyWindowScheduler>();

/**
 * Metrics and window spans for every scheduler of the process, without a line in the code that
 * makes them. It is an `Instrumentation` as `registerInstrumentations` and `NodeSDK` take it.
 *
 * Schedulers are found through a diagnostics channel. Those that were made before it was enabled,
 * and are still open, get metrics too; spans only where no parent is required, as what was active
 * when they were made is not known.
 *
 * A change of the configuration or of the tracer provider holds for schedulers that are made from
 * then on, so that no generation is traced in part. The meter provider, and the end of metrics,
 * take effect at once.
 *
 * @example
 * const sdk = new NodeSDK({ instrumentations: [new VerifyWindowInstrumentation()] });
 * sdk.start();
 */
export class VerifyWindowInstrumentation {
  readonly instrumentationName = SCOPE_NAME;
  readonly instrumentationVersion = SCOPE_VERSION;
  readonly #metrics: VerifyWindowMetrics;
  readonly #guard = new Guard('instrumenting a verify-window scheduler failed');
  #config: Config;
  #tracerProvider: TracerProvider | undefined;
  #tracer = new VerifyWindowTracer();
  #isEnabled = false;

  /** @throws {VerifyWindowError} `invalid_argument` for a `maxAttributeSets` out of its range. */
  constructor(options: VerifyWindowInstrumentationOptions = {}) {
    const { histograms, ...config } = options;
    this.#metrics = new VerifyWindowMetrics(histograms === undefined ? {} : { histograms });
    this.#metrics.disable();
    this.#config = this.#apply(config);
    if (this.#config.enabled) this.enable();
  }

  /** Instruments the schedulers that are open, and those that are made from now on. */
  enable(): void {
    if (this.#isEnabled) return;
    this.#isEnabled = true;
    this.#switchMetrics();
    for (const scheduler of unannouncedSchedulers()) this.#take(scheduler, ROOT_CONTEXT);
    subscribe(SCHEDULER_CHANNEL, this.#onScheduler);
  }

  /**
   * Metrics stand still, and schedulers made from now on are left alone. Generations that are being
   * traced are traced to their end.
   */
  disable(): void {
    if (!this.#isEnabled) return;
    this.#isEnabled = false;
    this.#switchMetrics();
    unsubscribe(SCHEDULER_CHANNEL, this.#onScheduler);
  }

  setMeterProvider(provider: MeterProvider): void {
    this.#metrics.setMeterProvider(provider);
  }

  setTracerProvider(provider: TracerProvider): void {
    this.#tracerProvider = provider;
    this.#tracer.setTracerProvider(provider);
  }

  /**
   * Replaces the configuration; what is not in it gets its default. As with every
   * instrumentation, `enabled` only tells what the constructor does.
   *
   * @throws {VerifyWindowError} `invalid_argument` for a `maxAttributeSets` out of its range.
   */
  setConfig(config: VerifyWindowInstrumentationConfig = {}): void {
    this.#config = this.#apply(config);
    this.#switchMetrics();
  }

  getConfig(): VerifyWindowInstrumentationConfig {
    return this.#config;
  }

  readonly #onScheduler = (message: unknown): void => {
    this.#take((message as SchedulerCreated).scheduler, context.active());
  };

  /** What is thrown by a subscriber of a diagnostics channel would end the process. */
  #take(scheduler: VerifyWindowScheduler, parent: Context): void {
    this.#guard.run(() => {
      if (this.#config.metrics && !counted.has(scheduler)) {
        counted.add(scheduler);
        const attributes = this.#guard.run(() => this.#config.metricAttributes?.(scheduler));
        this.#metrics.observe(scheduler, attributes ?? {});
      }
      if (this.#config.spans) this.#tracer.observe(scheduler, parent);
    });
  }

  #apply(config: VerifyWindowInstrumentationConfig): Config {
    const { enabled = true, metrics = true, spans = true } = config;
    this.#metrics.setMaxAttributeSets(config.maxAttributeSets ?? DEFAULT_MAX_ATTRIBUTE_SETS);
    this.#tracer = new VerifyWindowTracer(config);
    if (this.#tracerProvider !== undefined) this.#tracer.setTracerProvider(this.#tracerProvider);
    return { ...config, enabled, metrics, spans };
  }

  #switchMetrics(): void {
    if (this.#isEnabled && this.#config.metrics) this.#metrics.enable();
    else this.#metrics.disable();
  }
}
