import { resolve } from 'node:path';
import { findProgram, freePorts, getJson, type Running, startServer } from './programs.js';

/** A span as Jaeger's query API gives it. */
export interface JaegerSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status?: { readonly code?: number };
  readonly attributes: Record<string, unknown>;
  readonly events: readonly { readonly name: string; readonly attributes: object }[];
  readonly resource: Record<string, unknown>;
}

const CONFIG = resolve('operations/jaeger/jaeger.yaml');

/** The real Jaeger 2 with a store in memory, as users have it, on ports of its own. */
export class Jaeger {
  readonly #server: Running;
  readonly #query: string;
  /** Where it takes OTLP over gRPC: host and port. */
  readonly grpcAddress: string;
  readonly tracesEndpoint: string;

  static async start(): Promise<Jaeger> {
    const ports = await freePorts(5);
    const [query, queryGrpc, grpc, http] = ports.map((port) => `127.0.0.1:${port}`);
    const variables = {
      QUERY_ADDRESS: `${query}`,
      QUERY_GRPC_ADDRESS: `${queryGrpc}`,
      OTLP_GRPC_ADDRESS: `${grpc}`,
      OTLP_HTTP_ADDRESS: `${http}`,
      TELEMETRY_PORT: `${ports[4]}`,
    };
    const program = findProgram('jaeger') ?? 'jaeger';
    const url = `http://${query}`;
    const server = await startServer(
      program,
      ['--config', CONFIG],
      `${url}/api/services`,
      variables,
    );
    return new Jaeger(server, url, `${grpc}`, `http://${http}/v1/traces`);
  }

  private constructor(server: Running, query: string, grpcAddress: string, tracesEndpoint: string) {
    this.#server = server;
    this.#query = query;
    this.grpcAddress = grpcAddress;
    this.tracesEndpoint = tracesEndpoint;
  }

  get pid(): number | undefined {
    return this.#server.process.pid;
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }

  async services(): Promise<string[]> {
    const answer = await getJson<{ services: string[] }>(`${this.#query}/api/v3/services`);
    return answer.services;
  }

  /** All traces of a service, each as its spans; none of a service that it has not heard of. */
  async traces(service: string): Promise<JaegerSpan[][]> {
    if (!(await this.services()).includes(service)) return [];
    const query = new URLSearchParams({
      'query.service_name': service,
      'query.start_time_min': new Date(Date.now() - 3_600_000).toISOString(),
      'query.start_time_max': new Date(Date.now() + 60_000).toISOString(),
      'query.num_traces': '1000',
    });
    const { result } = await getJson<{ result: OtlpTraces }>(
      `${this.#query}/api/v3/traces?${query}`,
    );
    const traces = new Map<string, JaegerSpan[]>();
    for (const { resource, scopeSpans } of result.resourceSpans) {
      for (const { spans } of scopeSpans) {
        for (const span of spans) {
          const trace = traces.get(span.traceId) ?? [];
          traces.set(span.traceId, trace);
          trace.push({
            ...span,
            attributes: valuesOf(span.attributes),
            events: (span.events ?? []).map((event) => ({
              ...event,
              attributes: valuesOf(event.attributes),
            })),
            resource: valuesOf(resource.attributes),
          });
        }
      }
    }
    return [...traces.values()];
  }
}

/** What of OTLP's JSON is read here. */
interface OtlpTraces {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] };
    readonly scopeSpans: readonly {
      readonly spans: readonly (Omit<JaegerSpan, 'attributes' | 'events' | 'resource'> & {
        readonly attributes?: readonly KeyValue[];
        readonly events?: readonly {
          readonly name: string;
          readonly attributes?: readonly KeyValue[];
        }[];
      })[];
    }[];
  }[];
}

interface KeyValue {
  readonly key: string;
  readonly value: Record<string, unknown>;
}

/**
 * Attributes as OTLP's JSON has them, as plain values; its 64-bit integers are strings. What Jaeger
 * adds of its own, such as a warning about clocks, is left out.
 */
function valuesOf(attributes: readonly KeyValue[] = []): Record<string, unknown> {
  return Object.fromEntries(
    attributes
      .filter(({ key }) => !key.startsWith('@jaeger@'))
      .map(({ key, value }) => [
        key,
        value.intValue === undefined ? Object.values(value)[0] : Number(value.intValue),
      ]),
  );
}
