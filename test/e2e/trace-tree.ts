import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { JaegerSpan } from './jaeger.js';

/** Writes a trace as the tree that a person would see, for the record of a run. */
export function writeTree(file: string, trace: readonly JaegerSpan[]): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${linesOf(trace, undefined, origin(trace)).join('\n')}\n`);
}

function linesOf(
  trace: readonly JaegerSpan[],
  parent: string | undefined,
  start: bigint,
  indent = '',
): string[] {
  return trace
    .filter(({ parentSpanId }) => (parentSpanId || undefined) === parent)
    .toSorted((a, b) => Number(BigInt(a.startTimeUnixNano) - BigInt(b.startTimeUnixNano)))
    .flatMap((span) => [
      `${indent}${describeSpan(span, start)}`,
      ...linesOf(trace, span.spanId, start, `${indent}  `),
    ]);
}

function describeSpan(span: JaegerSpan, start: bigint): string {
  const ms = (nanos: bigint) => (Number(nanos) / 1e6).toFixed(2);
  const begin = BigInt(span.startTimeUnixNano);
  const time = `+${ms(begin - start)} ms, ${ms(BigInt(span.endTimeUnixNano) - begin)} ms`;
  const attributes = Object.entries(span.attributes)
    .map(([key, value]) => `${key.split('.').at(-1)}=${JSON.stringify(value)}`)
    .join(' ');
  const events = span.events.map(({ name }) => ` !${name}`).join('');
  return `${span.resource['service.name']} ${span.name} [${time}] ${attributes}${events}`;
}

function origin(trace: readonly JaegerSpan[]): bigint {
  const times = trace.map(({ startTimeUnixNano }) => BigInt(startTimeUnixNano));
  return times.toSorted((a, b) => Number(a - b))[0] ?? 0n;
}
