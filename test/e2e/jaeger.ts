import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
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

/** The real Jaeger 2 with a store in memory, on ports of its own. */
export class Jaeger {
  readonly #server: Running;
  readonly #query: string;
  readonly tracesEndpoint: string;

  static async start(folder: string): Promise<Jaeger> {
    const [query = 0, queryGrpc = 0, otlp = 0] = await freePorts(3);
    const config = {
      service: {
        extensions: ['jaeger_storage', 'jaeger_query'],
        pipelines: {
          traces: { receivers: ['otlp'], exporters: ['jaeger_storage_exporter'] },
        },
        telemetry: { metrics: { level: 'none' } },
      },
      extensions: {
        jaeger_query: {
          storage: { traces: 'memory' },
          http: { endpoint: `127.0.0.1:${query}` },
          grpc: { endpoint: `127.0.0.1:${queryGrpc}` },
        },
        jaeger_storage: { backends: { memory: { memory: { max_traces: 10_000 } } } },
      },
      receivers: { otlp: { protocols: { http: { endpoint: `127.0.0.1:${otlp}` } } } },
      exporters: { jaeger_storage_exporter: { trace_storage: 'memory' } },
    };
    const file = join(folder, 'jaeger.yaml');
    writeFileSync(file, stringify(config));
    const url = `http://127.0.0.1:${query}`;
    const program = findProgram('jaeger') ?? 'jaeger';
    const server = await startServer(program, ['--config', file], `${url}/api/services`);
    return new Jaeger(server, url, `http://127.0.0.1:${otlp}/v1/traces`);
  }

  private constructor(server: Running, query: string, tracesEndpoint: string) {
    this.#server = server;
    this.#query = query;
    this.tracesEndpoint = tracesEndpoint;
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }

  async services(): Promise<string[]> {
    const answer = await getJson<{ services: string[] }>(`${this.#query}/api/v3/services`);
    return answer.services;
  }

  /** All traces of a service, each as its spans. */
  async traces(service: string): Promise<JaegerSpan[][]> {
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
