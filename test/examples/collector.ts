import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { afterEach } from 'vitest';
import {
  attributesOf,
  decodeMetrics,
  decodeTraces,
  hexOf,
  type PlainAttributes,
  spansOf,
} from '../../otlp/decode.js';
import { type SpanKind, StatusCode } from '../../otlp/schema_pb.js';

/** A span as it came over OTLP, with the attributes of the process that it comes from. */
export interface ReceivedSpan {
  readonly resource: PlainAttributes;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty for a span without a parent. */
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: SpanKind;
  readonly attributes: PlainAttributes;
  readonly isError: boolean;
}

const running = new Set<Server>();

/** Takes whatever is exported over OTLP/HTTP in Protobuf. */
export class Collector {
  readonly #server: Server;
  /** Paths that were exported to. */
  readonly paths = new Set<string | undefined>();
  readonly spans: ReceivedSpan[] = [];
  /** Of the processes whose metrics came, once for each export. */
  readonly metricResources: PlainAttributes[] = [];

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const body = await buffer(request);
      this.paths.add(request.url);
      if (request.url === '/v1/traces') this.spans.push(...received(body));
      if (request.url === '/v1/metrics') {
        const { resourceMetrics } = decodeMetrics(body);
        this.metricResources.push(...resourceMetrics.map(({ resource }) => attributesOf(resource)));
      }
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

function received(body: Uint8Array): ReceivedSpan[] {
  return spansOf(decodeTraces(body)).map(({ resource, span }) => ({
    resource: attributesOf(resource),
    traceId: hexOf(span.traceId),
    spanId: hexOf(span.spanId),
    parentSpanId: hexOf(span.parentSpanId),
    name: span.name,
    kind: span.kind,
    attributes: attributesOf(span),
    isError: span.status?.code === StatusCode.ERROR,
  }));
}

afterEach(() => {
  for (const server of running) {
    server.close();
    server.closeAllConnections();
  }
  running.clear();
});
