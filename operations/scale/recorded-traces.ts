import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { toBinary } from '@bufbuild/protobuf';
import {
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from 'llama-stage-otel/semconv';
import type { Report } from '../../examples/pipeline/report.js';
import { decodeTraces, spansOf } from '../../otlp/decode.js';
import { ExportTraceServiceRequestSchema, SpanSchema } from '../../otlp/schema_pb.js';

/** Export requests for traces, as the processes of the example sent them. */
export type RecordedTraces = readonly Uint8Array<ArrayBuffer>[];

/** A run of the example at depth 4. */
export interface Recording {
  readonly traces: RecordedTraces;
  /** Of one coordinator, with two generations at a time. */
  readonly windowsPerSecond: number;
  readonly secondsOfGeneration: number;
}

export interface TraceSizes {
  readonly generations: number;
  readonly windows: number;
  readonly spans: number;
  /** Bytes of all requests, in Protobuf, with what they say of their processes. */
  readonly bytes: number;
  readonly gzipBytes: number;
  /** By the name of the span. */
  readonly bySpan: Readonly<Record<string, { readonly count: number; readonly meanBytes: number }>>;
}

/** Runs the example, and keeps the spans of all its processes. */
export async function recordTraces(generations: number): Promise<Recording> {
  const bodies: Uint8Array<ArrayBuffer>[] = [];
  const server = createServer(async (request, response) => {
    bodies.push(new Uint8Array(await buffer(request)));
    response.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const args = ['--json', '--prometheus-port', '0', '--generations', `${generations}`];
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['build/examples/pipeline/main.js', ...args],
    {
      env: { ...process.env, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `http://127.0.0.1:${port}/` },
    },
  );
  server.close();
  server.closeAllConnections();
  const { parameters, pipelined } = JSON.parse(stdout) as Report;
  const { seconds } = pipelined.q1;
  return {
    traces: bodies,
    windowsPerSecond: pipelined.q3.opened / seconds,
    secondsOfGeneration: (seconds * parameters.concurrency) / generations,
  };
}

export function measureTraces(bodies: RecordedTraces): TraceSizes {
  const spans = bodies.flatMap((body) => spansOf(decodeTraces(body)));
  const sizes = new Map<string, number[]>();
  for (const { span } of spans) {
    const { length } = toBinary(SpanSchema, span);
    sizes.set(span.name, [...(sizes.get(span.name) ?? []), length]);
  }
  const count = (name: string) => sizes.get(name)?.length ?? 0;
  return {
    generations: count(SPAN_LLAMA_STAGE_GENERATION),
    windows: count(SPAN_LLAMA_STAGE_VERIFY_WINDOW),
    spans: spans.length,
    bytes: bodies.reduce((sum, { length }) => sum + length, 0),
    gzipBytes: bodies.reduce((sum, body) => sum + gzipSync(body).length, 0),
    bySpan: Object.fromEntries(
      [...sizes].map(([name, all]) => [
        name,
        { count: all.length, meanBytes: all.reduce((a, b) => a + b) / all.length },
      ]),
    ),
  };
}

/** The same spans under trace ids of their own. */
export function copyTraces(bodies: RecordedTraces, copy: number): RecordedTraces {
  return bodies.map((body) => {
    const request = decodeTraces(body);
    for (const { span } of spansOf(request)) {
      // Of its own memory: what is decoded may share that of the body.
      span.traceId = span.traceId.slice();
      const view = new DataView(span.traceId.buffer);
      view.setUint32(0, view.getUint32(0) ^ copy);
    }
    return toBinary(ExportTraceServiceRequestSchema, request);
  });
}
