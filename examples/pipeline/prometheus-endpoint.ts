import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import type { MetricReader } from '@opentelemetry/sdk-metrics';
import { UsageError } from './arguments.js';

const LOOPBACK = new Set(['127.0.0.1', 'localhost', '[::1]']);

/**
 * The status of a request that is not for the metrics. One that names another host than this one
 * comes from a page whose name was made to resolve to this machine.
 */
function refusalOf({ headers, method, url }: IncomingMessage): number | undefined {
  const base = `http://${headers.host}`;
  if (!URL.canParse(base) || !LOOPBACK.has(new URL(base).hostname)) return 403;
  if (!URL.canParse(url ?? '', base)) return 400;
  if (new URL(url ?? '', base).pathname !== '/metrics') return 404;
  return method === 'GET' || method === 'HEAD' ? undefined : 405;
}

/** Serves the metrics of one process on the loopback interface. */
export class PrometheusEndpoint {
  readonly reader: MetricReader;
  readonly url: string;
  readonly #server: Server;

  private constructor(server: Server, reader: MetricReader) {
    this.#server = server;
    this.reader = reader;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/metrics`;
  }

  /**
   * @param port the first port of the chain; the stages take it and those that follow. 0 takes
   * whichever is free.
   * @throws {UsageError} where the port is taken.
   */
  static async start(port: number, stage: number): Promise<PrometheusEndpoint> {
    const exporter = new PrometheusExporter({ preventServerStart: true });
    const server = createServer((request, response) => {
      const refusal = refusalOf(request);
      if (refusal === undefined) exporter.getMetricsRequestHandler(request, response);
      else response.writeHead(refusal, refusal === 405 ? { allow: 'GET, HEAD' } : {}).end();
    });
    server.listen(port === 0 ? 0 : port + stage, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch (error) {
      throw new UsageError(
        `--prometheus-port ${port} cannot be used: ${(error as Error).message}; 0 takes free ports`,
      );
    }
    return new PrometheusEndpoint(server, exporter);
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
