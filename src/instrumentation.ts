import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import {
  type Attributes,
  context,
  type MeterProvider,
  ROOT_CONTEXT,
  type TracerProvider,
} from '@opentelemetry/api';
import { DEFAULT_MAX_ATTRIBUTE_SETS } from './attribute-sets.js';
import { Guard, SCOPE_NAME, SCOPE_VERSION, warnOnce } from './guard.js';
import type { HistogramBackend } from './histograms/histogram-backend.js';
import { VerifyWindowMetrics } from './metrics/verify-window-metrics.js';
import { internalsOf, openSchedulers, SCHEDULER_CHANNEL } from './scheduler/discovery.js';
import type { VerifyWindowScheduler } from './scheduler/scheduler.js';
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
  /** How many windows of a generation get a span whatever becomes of them. Default: 1000. */
  maxWindowSpans?: number;
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

  /** @throws {VerifyWindowError} `invalid_argument` for a limit out of its range. */
  constructor(options?: VerifyWindowInstrumentationOptions) {
    const { histograms, ...config } = options ?? {};
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
    for (const scheduler of openSchedulers()) this.#takeLate(scheduler);
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
   * @throws {VerifyWindowError} `invalid_argument` for a limit out of its range.
   */
  setConfig(config?: VerifyWindowInstrumentationConfig): void {
    this.#config = this.#apply(config ?? {});
    this.#switchMetrics();
  }

  getConfig(): VerifyWindowInstrumentationConfig {
    return this.#config;
  }

  /** What a subscriber of a diagnostics channel throws would end the process. */
  readonly #onScheduler = (message: unknown): void => {
    this.#guard.run(() => {
      const scheduler = (message as { scheduler?: unknown } | null)?.scheduler;
      if (!isScheduler(scheduler)) {
        warnOnce(`a message on ${SCHEDULER_CHANNEL} that is not understood is left alone`);
        return;
      }
      this.#count(scheduler);
      if (this.#config.spans) this.#tracer.discover(scheduler, context.active());
    });
  };

  /** Without a parent span: which was active when the scheduler was made is not known. */
  #takeLate(scheduler: unknown): void {
    this.#guard.run(() => {
      if (!isScheduler(scheduler)) return;
      this.#count(scheduler);
      const { requireParentSpan = true, spans } = this.#config;
      if (spans && !requireParentSpan) this.#tracer.discover(scheduler, ROOT_CONTEXT);
    });
  }

  #count(scheduler: VerifyWindowScheduler): void {
    if (!this.#config.metrics) return;
    const attributes = this.#guard.run(() => this.#config.metricAttributes?.(scheduler));
    this.#metrics.discover(scheduler, attributes ?? {});
  }

  #apply(config: VerifyWindowInstrumentationConfig): Config {
    const { enabled = true, metrics = true, spans = true } = config;
    const tracer = new VerifyWindowTracer(config);
    this.#metrics.setMaxAttributeSets(config.maxAttributeSets ?? DEFAULT_MAX_ATTRIBUTE_SETS);
    this.#tracer = tracer;
    if (this.#tracerProvider !== undefined) this.#tracer.setTracerProvider(this.#tracerProvider);
    return { ...config, enabled, metrics, spans };
  }

  #switchMetrics(): void {
    if (this.#isEnabled && this.#config.metrics) this.#metrics.enable();
    else this.#metrics.disable();
  }
}

function isScheduler(value: unknown): value is VerifyWindowScheduler {
  return internalsOf(value) !== undefined;
}

/**
 * The configuration that environment variables give, in the manner of OpenTelemetry's own. What
 * cannot be read is left at its default, with a warning through `diag`.
 *
 * | variable | option | default |
 * |---|---|---|
 * | `OTEL_INSTRUMENTATION_LLAMA_STAGE_ENABLED` | `enabled` | `true` |
 * | `OTEL_INSTRUMENTATION_LLAMA_STAGE_METRICS_ENABLED` | `metrics` | `true` |
 * | `OTEL_INSTRUMENTATION_LLAMA_STAGE_SPANS_ENABLED` | `spans` | `true` |
 * | `OTEL_INSTRUMENTATION_LLAMA_STAGE_REQUIRE_PARENT_SPAN` | `requireParentSpan` | `true` |
 * | `OTEL_INSTRUMENTATION_LLAMA_STAGE_MAX_ATTRIBUTE_SETS` | `maxAttributeSets` | `100` |
 * | `OTEL_INSTRUMENTATION_LLAMA_STAGE_MAX_WINDOW_SPANS` | `maxWindowSpans` | `1000` |
 * | `OTEL_INSTRUMENTATION_LLAMA_STAGE_METRIC_ATTRIBUTES` | `metricAttributes`, as `key=value,…` | none |
 *
 * @param environment such as `process.env`.
 */
export function configFromEnvironment(
  environment: Readonly<Record<string, string | undefined>> | undefined,
): VerifyWindowInstrumentationConfig {
  const config: VerifyWindowInstrumentationConfig = {};
  const read = <Value>(
    name: string,
    allowed: string,
    parse: (text: string) => Value | undefined,
    take: (value: Value) => void,
  ) => {
    const given: unknown = environment?.[`OTEL_INSTRUMENTATION_LLAMA_STAGE_${name}`];
    const text = typeof given === 'string' ? given.trim() : '';
    if (text === '') return;
    const value = parse(text);
    if (value !== undefined) take(value);
    else warnOnce(`OTEL_INSTRUMENTATION_LLAMA_STAGE_${name} must be ${allowed}; it is ignored`);
  };
  const readBoolean = (
    name: string,
    option: 'enabled' | 'metrics' | 'spans' | 'requireParentSpan',
  ) =>
    read(name, 'true or false', booleanOf, (value) => {
      config[option] = value;
    });
  readBoolean('ENABLED', 'enabled');
  readBoolean('METRICS_ENABLED', 'metrics');
  readBoolean('SPANS_ENABLED', 'spans');
  readBoolean('REQUIRE_PARENT_SPAN', 'requireParentSpan');
  read('MAX_ATTRIBUTE_SETS', 'an integer of at least 1', integerFrom(1), (value) => {
    config.maxAttributeSets = value;
  });
  read('MAX_WINDOW_SPANS', 'an integer of at least 0', integerFrom(0), (value) => {
    config.maxWindowSpans = value;
  });
  read('METRIC_ATTRIBUTES', 'a list of key=value', attributesOf, (attributes) => {
    config.metricAttributes = () => attributes;
  });
  return config;
}

function booleanOf(text: string): boolean | undefined {
  const value = text.toLowerCase();
  return value === 'true' ? true : value === 'false' ? false : undefined;
}

function integerFrom(least: number): (text: string) => number | undefined {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    return Number.isSafeInteger(value) && value >= least ? value : undefined;
  };
}

/** As `OTEL_RESOURCE_ATTRIBUTES` is written: percent-encoded where a value has a comma or a sign. */
function attributesOf(text: string): Attributes | undefined {
  try {
    const entries = text.split(',').map((pair) => {
      const sign = pair.indexOf('=');
      const key = pair.slice(0, sign).trim();
      if (sign < 0 || key === '') throw new Error('no key');
      return [key, decodeURIComponent(pair.slice(sign + 1).trim())] as const;
    });
    return Object.fromEntries(entries);
  } catch {
    return undefined;
  }
}
