import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type DiagLogger, DiagLogLevel, diag } from '@opentelemetry/api';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  MeterProvider,
  MetricReader,
  PeriodicExportingMetricReader,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics';
import { VerifyWindowMetrics } from 'llama-stage-otel';
import { UsageError } from './arguments.js';

/** How long the exporters may take at the end, in milliseconds. */
const SHUTDOWN_MS = 2000;

/** The SDK of the coordinator, with a Prometheus endpoint and, where it is wanted, OTLP. */
export class Telemetry {
  readonly metrics: VerifyWindowMetrics;
  readonly url: string;
  readonly #provider: MeterProvider;
  readonly #reader: TableReader;
  readonly #server: Server;

  private constructor(server: Server, prometheus: PrometheusExporter) {
    this.#server = server;
    this.#reader = new TableReader();
    this.#provider = new MeterProvider({
      resource: resourceFromAttributes({
        'service.name': 'llama-stage-coordinator',
        'service.instance.id': `coordinator-${process.pid}`,
      }),
      readers: [this.#reader, prometheus, ...otlpReaders()],
    });
    this.metrics = new VerifyWindowMetrics({ meter: this.#provider.getMeter('llama-stage-otel') });
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/metrics`;
  }

  /** @throws {UsageError} where the port is taken. */
  static async start(port: number): Promise<Telemetry> {
    diag.setLogger(TO_STDERR, DiagLogLevel.WARN);
    const prometheus = new PrometheusExporter({ preventServerStart: true });
    const server = createServer((request, response) => {
      if (request.url === '/metrics') prometheus.getMetricsRequestHandler(request, response);
      else response.writeHead(404).end();
    });
    server.listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch (error) {
      throw new UsageError(
        `--prometheus-port ${port} cannot be used: ${(error as Error).message}; 0 takes a free port`,
      );
    }
    return new Telemetry(server, prometheus);
  }

  /** What an exporter would get at this moment. */
  async collect(): Promise<ResourceMetrics> {
    const { resourceMetrics, errors } = await this.#reader.collect();
    if (errors.length > 0) throw errors[0];
    return resourceMetrics;
  }

  /** Exports what is left, within a bounded time, and stops serving. */
  async shutdown(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    try {
      await this.#provider.shutdown({ timeoutMillis: SHUTDOWN_MS });
    } catch (error) {
      console.error(`metrics were not all exported: ${(error as Error).message}`);
    }
    this.metrics.disable();
  }
}

/** The table at the end is made of the same metrics that the exporters hand out. */
class TableReader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

const TO_STDERR: DiagLogger = {
  error: say,
  warn: say,
  info: () => {},
  debug: () => {},
  verbose: () => {},
};

/** One line: the SDK hands over its errors as JSON, with their stacks. */
function say(text: string): void {
  let message: unknown;
  try {
    ({ message } = JSON.parse(text));
  } catch {
    // It is plain text.
  }
  console.error(`telemetry: ${message ?? text}`);
}

function otlpReaders(): MetricReader[] {
  const { OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT } = process.env;
  if (!OTEL_EXPORTER_OTLP_ENDPOINT && !OTEL_EXPORTER_OTLP_METRICS_ENDPOINT) return [];
  return [
    new PeriodicExportingMetricReader({
      exporter: new OTLPMetricExporter({ timeoutMillis: SHUTDOWN_MS }),
      exportIntervalMillis: 5000,
      exportTimeoutMillis: SHUTDOWN_MS,
    }),
  ];
}
