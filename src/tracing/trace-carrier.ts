import { type Context, context, propagation, trace } from '@opentelemetry/api';
import { attempt, Guard } from '../guard.js';

/**
 * Trace context as it travels in a stage message: the headers of W3C Trace Context
 * (`traceparent`, `tracestate`), or whatever fields the global propagator writes. It is plain
 * data, so a JSON protocol can embed it as it is; {@link encodeTraceCarrier} makes bytes of it.
 */
export type TraceCarrier = Readonly<Record<string, string>>;

/** More bytes than a trace context has a reason to take. */
const MAX_CARRIER_BYTES = 4096;

/** As long as W3C Baggage lets all of its field be. */
const MAX_VALUE_LENGTH = 8192;

/** A message has fewer fields than this; in a larger one they are not looked for in other spellings. */
const MAX_FIELDS = 1024;

/** What is passed on where no propagator is registered: a stage without an SDK breaks no trace. */
const W3C_FIELDS = ['traceparent', 'tracestate', 'baggage'];

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
 *
 * @param carrier an object with the propagator's fields, in any case and with the values of a header
 * (a string or an array of strings); `Headers` or a `Map` of them; or the bytes that
 * {@link encodeTraceCarrier} wrote. No other field of it is read.
 */
export function extractTraceContext(carrier: unknown): Context {
  return extractFields(fieldsOf(carrier));
}

/**
 * A carrier as bytes, for a binary protocol: lines of `name: value`, at most 4096 bytes. Left out
 * are fields that do not fit, the baggage first, and those that are no ASCII text in one line, which
 * no propagator writes.
 */
export function encodeTraceCarrier(carrier: TraceCarrier): Uint8Array {
  const lines: string[] = [];
  let free = MAX_CARRIER_BYTES;
  for (const [name, value] of inOrderOfNeed(carrier)) {
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

/** The fields of the registered propagator, as a message carried them: none where it is no carrier. */
export function fieldsOf(carrier: unknown): TraceCarrier {
  if (typeof carrier !== 'object' || carrier === null) return {};
  return attempt(() => readFields(carrier)) ?? {};
}

/** As {@link extractTraceContext}, of fields that were read already. */
export function extractFields(fields: TraceCarrier): Context {
  const active = context.active();
  const here = trace.getSpan(active) === undefined ? active : trace.deleteSpan(active);
  return guard.run(() => propagation.extract(here, fields)) ?? here;
}

function readFields(carrier: object): TraceCarrier {
  if (ArrayBuffer.isView(carrier) || carrier instanceof ArrayBuffer) {
    return readFields(decodeTraceCarrier(bytesOf(carrier)));
  }
  if (!isRecord(carrier)) return {};
  const read = readerOf(carrier);
  const fields: Record<string, string> = {};
  for (const name of fieldNames()) {
    const value = attempt(() => textOf(read(name)));
    if (value !== undefined) fields[name] = value;
  }
  return fields;
}

/** What gives the value of a name, in whatever case the carrier spells it. */
function readerOf(carrier: object): (name: string) => unknown {
  if (carrier instanceof Map) {
    return (name) => carrier.get(spelledIn(carrier.keys(), name) ?? name);
  }
  const own = carrier as Record<string, unknown>;
  let names: string[] | undefined;
  return (name) => {
    if (Object.hasOwn(own, name)) return own[name];
    // `Headers`, and what resembles them, do not mind the case by themselves.
    if (typeof own.get === 'function') return own.get(name);
    // Not the keys, for which a proxy is asked about each of its fields.
    names ??= Object.getOwnPropertyNames(own);
    const spelling = names.length > MAX_FIELDS ? undefined : spelledIn(names, name);
    return spelling === undefined ? undefined : own[spelling];
  };
}

function spelledIn(names: Iterable<unknown>, wanted: string): string | undefined {
  const lowerCase = wanted.toLowerCase();
  let seen = 0;
  for (const name of names) {
    if (typeof name === 'string' && name.toLowerCase() === lowerCase) return name;
    seen++;
    if (seen === MAX_FIELDS) return undefined;
  }
  return undefined;
}

/** The value of a header: a text, or the first one of several. */
function textOf(value: unknown): string | undefined {
  const text = Array.isArray(value)
    ? value.slice(0, MAX_FIELDS).find((item) => typeof item === 'string')
    : value;
  return typeof text === 'string' && text.length <= MAX_VALUE_LENGTH ? text : undefined;
}

function fieldNames(): readonly string[] {
  const names = guard.run(() => propagation.fields());
  return names === undefined || names.length === 0 ? W3C_FIELDS : names;
}

function bytesOf(bytes: ArrayBufferView | ArrayBuffer): Uint8Array {
  return ArrayBuffer.isView(bytes)
    ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : new Uint8Array(bytes);
}

/** Its fields: what a trace cannot do without first, and the baggage last. */
function inOrderOfNeed(carrier: TraceCarrier): [string, string][] {
  if (attempt(() => isRecord(carrier)) !== true) return [];
  const need = (name: string) => {
    const lowerCase = name.toLowerCase();
    return lowerCase === 'traceparent' ? 0 : lowerCase === 'baggage' ? 2 : 1;
  };
  const names = attempt(() => Object.keys(carrier)) ?? [];
  return names
    .sort((left, right) => need(left) - need(right))
    .slice(0, MAX_FIELDS)
    .map((name): [string, unknown] => [name, attempt(() => carrier[name])])
    .filter((entry): entry is [string, string] => typeof entry[1] === 'string');
}

/** Whether it may hold fields under their names. The fields of a text are its characters. */
function isRecord(carrier: unknown): carrier is object {
  if (typeof carrier !== 'object' || carrier === null || carrier instanceof String) return false;
  return !Array.isArray(carrier) && !ArrayBuffer.isView(carrier);
}
