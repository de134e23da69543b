import { type Context, context, propagation, trace } from '@opentelemetry/api';
import { Guard } from '../guard.js';

/**
 * Trace context as it travels in a stage message: the headers of W3C Trace Context
 * (`traceparent`, `tracestate`), or whatever fields the global propagator writes. It is plain
 * data, so a JSON protocol can embed it as it is; {@link encodeTraceCarrier} makes bytes of it.
 */
export type TraceCarrier = Readonly<Record<string, string>>;

/** More bytes than a trace context has a reason to take. */
const MAX_CARRIER_BYTES = 4096;

/** A field as propagators write them: the name and the value of an HTTP header, in ASCII. */
const LINE = /^([\w!#$%&'*+.^`|~-]+): ([\t -~]*)$/;

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true });
const guard = new Guard('the propagator failed');

/** Writes a context by the global propagator. Empty where there is no trace or no propagator. */
export function injectTraceContext(from: Context): TraceCarrier {
  const carrier: Record<string, string> = {};
  guard.run(() => propagation.inject(from, carrier));
  return carrier;
}

/**
 * Reads the trace that a message carries into the active context, in place of the span there. What
 * is missing, broken or no carrier at all gives a context without a span: a message is worked on
 * whatever it carries.
 */
export function extractTraceContext(carrier: unknown): Context {
  const here = trace.deleteSpan(context.active());
  return guard.run(() => propagation.extract(here, fieldsOf(carrier))) ?? here;
}

/**
 * A carrier as bytes, for a binary protocol: lines of `name: value`, at most 4096 bytes. Left out
 * are fields that do not fit, and those that are no ASCII text in one line, which no propagator
 * writes.
 */
export function encodeTraceCarrier(carrier: TraceCarrier): Uint8Array {
  const lines: string[] = [];
  let free = MAX_CARRIER_BYTES;
  for (const [name, value] of Object.entries(fieldsOf(carrier))) {
    const line = `${name}: ${value}`;
    // A name with a colon in it would be read as a shorter one.
    if (line.length > free || LINE.exec(line)?.[1] !== name) continue;
    lines.push(line);
    free -= line.length + '\n'.length;
  }
  return encoder.encode(lines.join('\n'));
}

/** Reads what {@link encodeTraceCarrier} wrote; bytes that it cannot have written give no field. */
export function decodeTraceCarrier(bytes: Uint8Array): TraceCarrier {
  try {
    if (bytes.byteLength > MAX_CARRIER_BYTES) return {};
    const fields = decoder
      .decode(bytes)
      .split('\n')
      .map((line) => LINE.exec(line));
    return Object.fromEntries(fields.flatMap((match) => (match ? [[match[1], match[2]]] : [])));
  } catch {
    return {};
  }
}

/** The fields of a carrier as it came off the wire: none where it is no carrier. */
export function fieldsOf(carrier: unknown): TraceCarrier {
  if (typeof carrier !== 'object' || carrier === null) return {};
  try {
    return Object.fromEntries(
      Object.entries(carrier).filter(([, value]) => typeof value === 'string'),
    );
  } catch {
    // A proxy or a getter that throws.
    return {};
  }
}
