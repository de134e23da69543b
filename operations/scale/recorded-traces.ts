import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import {
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from 'llama-stage-otel/semconv';
import type { Report } from '../../examples/pipeline/report.js';
import { parts } from './protobuf.js';

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
  const spans = bodies.flatMap(spansOf);
  const sizes = new Map<string, number[]>();
  for (const span of spans) {
    const name = new TextDecoder().decode(parts(span, 5)[0]);
    sizes.set(name, [...(sizes.get(name) ?? []), span.length]);
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
    const copied = body.slice();
    for (const span of spansOf(copied)) {
      const traceId = parts(span, 1)[0] as Uint8Array;
      const view = new DataView(traceId.buffer, traceId.byteOffset, 4);
      view.setUint32(0, view.getUint32(0) ^ copy);
    }
    return copied;
  });
}

function spansOf(body: Uint8Array): Uint8Array[] {
  return parts(body, 1)
    .flatMap((resourceSpans) => parts(resourceSpans, 2))
    .flatMap((scopeSpans) => parts(scopeSpans, 2));
}
