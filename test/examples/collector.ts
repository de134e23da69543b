import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { Attributes } from '@opentelemetry/api';
import { afterEach } from 'vitest';
import { decodeResources, decodeTraces, type ReceivedSpan } from './otlp.js';

const running = new Set<Server>();

/** Takes whatever is exported over OTLP/HTTP in Protobuf. */
export class Collector {
  readonly #server: Server;
  /** Paths that were exported to. */
  readonly paths = new Set<string | undefined>();
  readonly spans: ReceivedSpan[] = [];
  /** Of the processes whose metrics came, once for each export. */
  readonly metricResources: Attributes[] = [];

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const body = await buffer(request);
      this.paths.add(request.url);
      if (request.url === '/v1/traces') this.spans.push(...decodeTraces(body));
      if (request.url === '/v1/metrics') this.metricResources.push(...decodeResources(body));
      response.end();
    });
    running.add(this.#server);
  }

  static async start(): Promise<Collector> {
    const collector = new Collector();
    collector.#server.listen(0, '127.0.0.1');
    await once(collector.#server, 'listening');
    return collector;
  }

  /** The environment of a process that is to export here. */
  get env(): NodeJS.ProcessEnv {
    const { port } = this.#server.address() as AddressInfo;
    return { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` };
  }
}

afterEach(() => {
  for (const server of running) {
    server.close();
    server.closeAllConnections();
  }
  running.clear();
});
