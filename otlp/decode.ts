import { type DescMessage, fromBinary, type MessageShape } from '@bufbuild/protobuf';
import {
  type AnyValue,
  type ExportMetricsServiceRequest,
  ExportMetricsServiceRequestSchema,
  type ExportTraceServiceRequest,
  ExportTraceServiceRequestSchema,
  type KeyValue,
} from './schema_pb.js';

/** An integer that a number may not hold is a bigint, and no value is undefined. */
export type PlainValue =
  | string
  | number
  | bigint
  | boolean
  | Uint8Array
  | undefined
  | readonly PlainValue[]
  | PlainAttributes;

export interface PlainAttributes {
  readonly [key: string]: PlainValue;
}

/** @throws where the bytes are cut off, or are not Protobuf. */
export function decodeTraces(body: Uint8Array): ExportTraceServiceRequest {
  return decode(ExportTraceServiceRequestSchema, body);
}

/** @throws where the bytes are cut off, or are not Protobuf. */
export function decodeMetrics(body: Uint8Array): ExportMetricsServiceRequest {
  return decode(ExportMetricsServiceRequestSchema, body);
}

function decode<Schema extends DescMessage>(
  schema: Schema,
  body: Uint8Array,
): MessageShape<Schema> {
  try {
    return fromBinary(schema, body);
  } catch (cause) {
    const { message } = cause as Error;
    throw new Error(`no whole ${schema.name} in ${body.length} bytes: ${message}`, { cause });
  }
}

/** All spans of a request, each with the process that it comes from. */
export function spansOf({ resourceSpans }: ExportTraceServiceRequest) {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) => spans.map((span) => ({ resource, span }))),
  );
}

/** A trace or span id in the form that is shown; empty for none. */
export function hexOf(id: Uint8Array): string {
  return Buffer.from(id).toString('hex');
}

/** Of a resource, a scope, a span, a point and so on. */
export function attributesOf(
  holder: { readonly attributes: readonly KeyValue[] } | undefined,
): PlainAttributes {
  return fromPairs(holder?.attributes ?? []);
}

function fromPairs(pairs: readonly KeyValue[]): PlainAttributes {
  return Object.fromEntries(pairs.map(({ key, value }) => [key, plainOf(value)]));
}

function plainOf(any: AnyValue | undefined): PlainValue {
  const value = any?.value;
  switch (value?.case) {
    case 'intValue': {
      const number = Number(value.value);
      return Number.isSafeInteger(number) ? number : value.value;
    }
    case 'arrayValue':
      return value.value.values.map(plainOf);
    case 'kvlistValue':
      return fromPairs(value.value.values);
    default:
      return value?.value;
  }
}
