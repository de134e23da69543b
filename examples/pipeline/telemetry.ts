import { randomUUID } from 'node:crypto';
import { context, DiagLogLevel, diag, metrics, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { callWithTimeout, W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import {
  defaultResource,
  detectResources,
  envDetector,
  type Resource,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import {
  MeterProvider,
  type MetricReader,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import {
  ATTR_LLAMA_STAGE_STAGE_ID,
  ATTR_LLAMA_STAGE_STAGE_LAYER_END,
  ATTR_LLAMA_STAGE_STAGE_LAYER_START,
} from 'llama-stage-otel/semconv';
import { TO_STDERR } from './diag-logger.js';
import { PrometheusEndpoint } from './prometheus-endpoint.js';
import type { StageIdentity } from './stage-identity.js';

/** How long the exporters may take at the end, in milliseconds. */
export const SHUTDOWN_MS = 2000;

export interface TelemetryOptions {
  readonly stage: StageIdentity;
  /** The coordinator's port, from which those of the stages count up; 0 takes a free one. */
  readonly prometheusPort: number;
  /** Readers beside Prometheus and OTLP. */
  readonly readers?: readonly MetricReader[];
}

/**
 * The OpenTelemetry SDK of one process, registered globally: metrics with a Prometheus endpoint,
 * and over OTLP both metrics and traces, where the environment names an endpoint for them.
 */
export class Telemetry {
  readonly #prometheus: PrometheusEndpoint;
  readonly #meterProvider: MeterProvider;
  readonly #tracerProvider: BasicTracerProvider | undefined;

  private constructor({ stage, readers = [] }: TelemetryOptions, prometheus: PrometheusEndpoint) {
    const resource = resourceOf(stage);
    this.#prometheus = prometheus;
    this.#meterProvider = new MeterProvider({
      resource,
      readers: [prometheus.reader, ...otlpReaders(), ...readers],
    });
    metrics.setGlobalMeterProvider(this.#meterProvider);
    this.#tracerProvider = startTracing(resource);
  }

  /** @throws {UsageError} where the port is taken. */
  static async start(options: TelemetryOptions): Promise<Telemetry> {
    diag.setLogger(TO_STDERR, DiagLogLevel.WARN);
    const { prometheusPort, stage } = options;
    return new Telemetry(options, await PrometheusEndpoint.start(prometheusPort, stage.index));
  }

  /** Where Prometheus finds the metrics of this process. */
  get metricsUrl(): string {
    return this.#prometheus.url;
  }

  /** Exports what is left, within a bounded time, and stops serving. */
  async shutdown(): Promise<void> {
    this.#prometheus.close();
    const shutdowns = [this.#meterProvider, this.#tracerProvider].map(async (provider) =>
      provider === undefined ? undefined : callWithTimeout(provider.shutdown(), SHUTDOWN_MS),
    );
    for (const outcome of await Promise.allSettled(shutdowns)) {
      if (outcome.status === 'rejected') diag.error(`not all was exported: ${outcome.reason}`);
    }
  }
}

/** Without an endpoint for traces there is no tracer provider, and so no span is ever made. */
function startTracing(resource: Resource): BasicTracerProvider | undefined {
  if (!isExported('TRACES')) return undefined;
  const exporter = new OTLPTraceExporter({ timeoutMillis: SHUTDOWN_MS });
  const provider = new BasicTracerProvider({
    resource,
    spanProcessors: [new BatchSpanProcessor(exporter)],
  });
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  trace.setGlobalTracerProvider(provider);
  return provider;
}

function otlpReaders(): MetricReader[] {
  if (!isExported('METRICS')) return [];
  return [
    new PeriodicExportingMetricReader({
      exporter: new OTLPMetricExporter({ timeoutMillis: SHUTDOWN_MS }),
      exportIntervalMillis: 5000,
      exportTimeoutMillis: SHUTDOWN_MS,
    }),
  ];
}

function isExported(signal: 'TRACES' | 'METRICS'): boolean {
  const { env } = process;
  return Boolean(env.OTEL_EXPORTER_OTLP_ENDPOINT || env[`OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`]);
}

/**
 * A stage is a service of its own: no other stage could stand in for it, as its layers are its
 * own. The environment may name it otherwise, but not what tells it from the other processes.
 */
function resourceOf({ index, id, layerStart, layerEnd }: StageIdentity): Resource {
  const serviceName = index === 0 ? 'llama-stage-coordinator' : `llama-stage-${index}`;
  return defaultResource()
    .merge(resourceFromAttributes({ 'service.name': serviceName }))
    .merge(detectResources({ detectors: [envDetector] }))
    .merge(
      resourceFromAttributes({
        'service.instance.id': randomUUID(),
        [ATTR_LLAMA_STAGE_STAGE_ID]: id,
        [ATTR_LLAMA_STAGE_STAGE_LAYER_START]: layerStart,
        [ATTR_LLAMA_STAGE_STAGE_LAYER_END]: layerEnd,
      }),
    );
}
