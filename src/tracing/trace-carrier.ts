import { type Context, propagation, ROOT_CONTEXT } from '@opentelemetry/api';

/**
 * Trace context as it travels in a stage message: the headers of W3C Trace Context
 * (`traceparent`, `tracestate`), or whatever fields the global propagator writes. It is plain
 * data, so a JSON protocol can embed it as it is; {@link encodeTraceCarrier} makes bytes of it.
 */
export type TraceCarrier = Readonly<Record<string, string>>;

/** More bytes than any propagator has a reason to write; a larger carrier is not sent on. */
const MAX_CARRIER_BYTES = 4096;

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true });

/** Writes a context by the global propagator. Empty where there is no trace or no propagator. */
export function injectTraceContext(context: Context): TraceCarrier {
  const carrier: Record<string, string> = {};
  propagation.inject(context, carrier);
  return carrier;
}

/**
 * Reads the context that a message carries. What is missing, broken or no carrier at all gives a
 * context without a trace: a message is worked on whatever it carries.
 */
export function extractTraceContext(carrier: unknown): Context {
  if (typeof carrier !== 'object' || carrier === null) return ROOT_CONTEXT;
  const fields = Object.entries(carrier).filter(([, value]) => typeof value === 'string');
  try {
    return propagation.extract(ROOT_CONTEXT, Object.fromEntries(fields));
  } catch {
    // A propagator of the host that cannot read its fields costs the trace, not the message.
    return ROOT_CONTEXT;
  }
}

/**
 * A carrier as bytes, for a binary protocol: UTF-8 lines of `name: value`. No bytes for an empty
 * carrier, and for one that is too large to be a trace context.
 */
export function encodeTraceCarrier(carrier: TraceCarrier): Uint8Array {
  const lines = Object.entries(carrier).map(([name, value]) => `${name}: ${value}`);
  const bytes = encoder.encode(lines.join('\n'));
  return bytes.length > MAX_CARRIER_BYTES ? new Uint8Array() : bytes;
}

/** Reads what {@link encodeTraceCarrier} wrote; bytes that it cannot have written give no field. */
export function decodeTraceCarrier(bytes: Uint8Array): TraceCarrier {
  if (bytes.length > MAX_CARRIER_BYTES) return {};
  try {
    const lines = decoder.decode(bytes).split('\n');
    const fields = lines.map((line) => /^([^:\s]+): (.*)$/.exec(line));
    return Object.fromEntries(fields.flatMap((match) => (match ? [[match[1], match[2]]] : [])));
  } catch {
    return {};
  }
}
