import { type Attributes, SpanKind } from '@opentelemetry/api';

/** A span as it came over OTLP, with the attributes of the process that it comes from. */
export interface ReceivedSpan {
  readonly resource: Attributes;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty for a span without a parent. */
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: SpanKind;
  readonly attributes: Attributes;
  readonly isError: boolean;
}

/** OTLP counts the kinds from 1, after "unspecified". */
const KINDS = [undefined, SpanKind.INTERNAL, SpanKind.SERVER, SpanKind.CLIENT];
const STATUS_ERROR = 2n;

/** The spans of an `ExportTraceServiceRequest` in Protobuf. */
export function decodeTraces(body: Buffer): ReceivedSpan[] {
  const resources = decodeResources(body);
  return new Message(body).messages(1).flatMap((resourceSpans, index) =>
    resourceSpans
      .messages(2)
      .flatMap((scopeSpans) => scopeSpans.messages(2))
      .map((span) => spanOf(span, resources[index] as Attributes)),
  );
}

/** The attributes of the processes that an export request of any signal comes from. */
export function decodeResources(body: Buffer): Attributes[] {
  const perResource = new Message(body).messages(1);
  return perResource.map((part) => attributesOf(part.messages(1)[0]?.messages(1) ?? []));
}

function spanOf(span: Message, resource: Attributes): ReceivedSpan {
  return {
    resource,
    traceId: span.bytes(1).toString('hex'),
    spanId: span.bytes(2).toString('hex'),
    parentSpanId: span.bytes(4).toString('hex'),
    name: span.bytes(5).toString(),
    kind: KINDS[Number(span.number(6))] as SpanKind,
    attributes: attributesOf(span.messages(9)),
    isError: span.messages(15)[0]?.number(3) === STATUS_ERROR,
  };
}

function attributesOf(keyValues: readonly Message[]): Attributes {
  return Object.fromEntries(
    keyValues.map((keyValue) => [
      keyValue.bytes(1).toString(),
      readValue(keyValue.messages(2)[0] as Message),
    ]),
  );
}

function readValue(value: Message): string | number | boolean | number[] | undefined {
  if (value.has(1)) return value.bytes(1).toString();
  if (value.has(2)) return value.number(2) === 1n;
  if (value.has(3)) return Number(BigInt.asIntN(64, value.number(3)));
  if (value.has(4)) return value.bytes(4).readDoubleLE();
  if (value.has(5)) {
    const elements = value.messages(5)[0]?.messages(1) ?? [];
    return elements.map((element) => readValue(element) as number);
  }
  return undefined;
}

/** The fields of one Protobuf message, by their numbers. */
class Message {
  readonly #fields = new Map<number, (bigint | Buffer)[]>();

  constructor(bytes: Buffer) {
    let at = 0;
    const take = (length: number) => {
      at += length;
      return bytes.subarray(at - length, at);
    };
    const varint = () => {
      let value = 0n;
      for (let shift = 0n; ; shift += 7n) {
        const byte = BigInt(bytes.readUInt8(at++));
        value |= (byte & 0x7fn) << shift;
        if (byte < 0x80n) return value;
      }
    };
    const field = (wireType: number) => {
      if (wireType === 0) return varint();
      if (wireType === 1) return take(8);
      if (wireType === 2) return take(Number(varint()));
      if (wireType === 5) return take(4);
      throw new Error(`wire type ${wireType} is not known`);
    };
    while (at < bytes.length) {
      const tag = Number(varint());
      const number = tag >> 3;
      this.#fields.set(number, [...(this.#fields.get(number) ?? []), field(tag & 7)]);
    }
  }

  has(number: number): boolean {
    return this.#fields.has(number);
  }

  number(number: number): bigint {
    return (this.#fields.get(number)?.[0] ?? 0n) as bigint;
  }

  bytes(number: number): Buffer {
    return (this.#fields.get(number)?.[0] ?? Buffer.alloc(0)) as Buffer;
  }

  messages(number: number): Message[] {
    return (this.#fields.get(number) ?? []).map((bytes) => new Message(bytes as Buffer));
  }
}
