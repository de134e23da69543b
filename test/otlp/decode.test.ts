import { toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import * as api from '@opentelemetry/api';
import {
  ProtobufMetricsSerializer,
  ProtobufTraceSerializer,
} from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { AggregationType, MeterProvider } from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { describe, expect, it } from 'vitest';
import { attributesOf, decodeMetrics, decodeTraces, hexOf, spansOf } from '../../otlp/decode.js';
import {
  AggregationTemporality,
  ExportTraceServiceRequestSchema,
  SpanKind,
  StatusCode,
} from '../../otlp/schema_pb.js';
import { ManualReader } from '../metrics/collected.js';

const VALUES = {
  string: 'täxt',
  empty: '',
  boolean: false,
  integer: -7,
  double: 0.25,
  strings: ['a', 'b'],
  numbers: [1, 2.5],
};
const START = 1_700_000_000_123;
const REMOTE = { traceId: 'ab'.repeat(16), spanId: 'cd'.repeat(8), traceFlags: 1, isRemote: true };

/** An export request with two spans, of which the first carries all that a span may. */
function exportedTraces(resource: object = VALUES): Uint8Array {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes(resource as api.Attributes),
    spanProcessors: [new SimpleSpanProcessor(exporter)],
    spanLimits: { attributeCountLimit: 7, eventCountLimit: 1, linkCountLimit: 1 },
  });
  const tracer = provider.getTracer('scope', '1.2.3');
  const parent = api.trace.setSpanContext(api.ROOT_CONTEXT, {
    ...REMOTE,
    traceState: api.createTraceState('vendor=1'),
  });
  const links = [{ context: { ...REMOTE, traceId: 'ef'.repeat(16) }, attributes: { n: 1 } }];
  const options = { kind: api.SpanKind.CLIENT, startTime: START, links };
  const span = tracer.startSpan('full', { ...options, attributes: VALUES }, parent);
  span.setAttribute('one too many', 1);
  span.addEvent('early', {}, START + 1);
  span.addEvent('late', { reason: 'test' }, START + 2);
  span.setStatus({ code: api.SpanStatusCode.ERROR, message: 'went wrong' });
  span.end(START + 3);
  tracer.startSpan('bare', { startTime: START }).end(START);
  return ProtobufTraceSerializer.serializeRequest(exporter.getFinishedSpans()) as Uint8Array;
}

async function exportedMetrics(): Promise<Uint8Array> {
  const reader = new ManualReader();
  const provider = new MeterProvider({
    readers: [reader],
    resource: resourceFromAttributes({ 'service.name': 'test' }),
    views: [
      {
        instrumentName: 'exponential',
        aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM },
      },
    ],
  });
  const meter = provider.getMeter('scope', '1.2.3', { schemaUrl: 'https://example.com/schema' });
  const integers = { valueType: api.ValueType.INT };
  meter.createGauge('gauge').record(-0.5, { on: true });
  meter.createCounter('counter', { unit: '{thing}', description: 'Things' }).add(2.5);
  meter.createUpDownCounter('up and down', integers).add(-3);
  const advice = { explicitBucketBoundaries: [1, 10] };
  const histogram = meter.createHistogram('histogram', { advice });
  for (const value of [0.5, 1, 5, 100]) histogram.record(value);
  const exponential = meter.createHistogram('exponential');
  for (const value of [0, 0.25, 0.25, 0.5]) exponential.record(value);
  const { resourceMetrics } = await reader.collect();
  return ProtobufMetricsSerializer.serializeRequest(resourceMetrics) as Uint8Array;
}

describe('traces of the SDK', () => {
  const body = exportedTraces();
  const request = decodeTraces(body);
  const [full, bare] = spansOf(request).map(({ span }) => span);

  it('come with all that a span carries', () => {
    expect(full).toMatchObject({
      name: 'full',
      kind: SpanKind.CLIENT,
      traceState: 'vendor=1',
      startTimeUnixNano: BigInt(START) * 1_000_000n,
      endTimeUnixNano: BigInt(START + 3) * 1_000_000n,
      droppedAttributesCount: 1,
      droppedEventsCount: 1,
      droppedLinksCount: 0,
      status: { code: StatusCode.ERROR, message: 'went wrong' },
      // The parent's remoteness is known, and is true; sampled.
      flags: 0x301,
    });
    expect(attributesOf(full)).toEqual(VALUES);
    expect(hexOf(full?.traceId as Uint8Array)).toBe(REMOTE.traceId);
    expect(hexOf(full?.spanId as Uint8Array)).toMatch(/^[0-9a-f]{16}$/);
    expect(hexOf(full?.parentSpanId as Uint8Array)).toBe(REMOTE.spanId);

    expect(full?.events).toMatchObject([
      { name: 'late', timeUnixNano: BigInt(START + 2) * 1_000_000n },
    ]);
    expect(attributesOf(full?.events[0])).toEqual({ reason: 'test' });
    expect(full?.links.map(({ traceId }) => hexOf(traceId))).toEqual(['ef'.repeat(16)]);
    expect(attributesOf(full?.links[0])).toEqual({ n: 1 });
  });

  it('come without what a span has not', () => {
    expect(bare).toMatchObject({
      name: 'bare',
      kind: SpanKind.INTERNAL,
      traceState: '',
      events: [],
      links: [],
      status: { code: StatusCode.UNSET, message: '' },
    });
    expect(hexOf(bare?.parentSpanId as Uint8Array)).toBe('');
    expect(attributesOf(bare)).toEqual({});
  });

  it('come with their process and their scope', () => {
    for (const { resource } of spansOf(request)) expect(attributesOf(resource)).toEqual(VALUES);
    expect(request.resourceSpans[0]?.scopeSpans[0]?.scope).toMatchObject({
      name: 'scope',
      version: '1.2.3',
    });
  });

  it('are encoded again to the same bytes', () => {
    expect(toBinary(ExportTraceServiceRequestSchema, request)).toEqual(body);
  });
});

describe('metrics of the SDK', async () => {
  const [resourceMetrics] = decodeMetrics(await exportedMetrics()).resourceMetrics;
  const [scopeMetrics] = resourceMetrics?.scopeMetrics ?? [];
  const metric = (named: string) => scopeMetrics?.metrics.find(({ name }) => name === named);

  it('come with their process and their scope', () => {
    expect(attributesOf(resourceMetrics?.resource)).toEqual({ 'service.name': 'test' });
    expect(scopeMetrics).toMatchObject({
      scope: { name: 'scope', version: '1.2.3' },
      schemaUrl: 'https://example.com/schema',
    });
  });

  it('come with the points of a gauge', () => {
    const data = metric('gauge')?.data;
    const point = { value: { case: 'asDouble', value: -0.5 } };
    expect(data).toMatchObject({ case: 'gauge', value: { dataPoints: [point] } });
    expect(data?.case === 'gauge' && attributesOf(data.value.dataPoints[0])).toEqual({ on: true });
  });

  it('come with the points of a sum', () => {
    const aggregationTemporality = AggregationTemporality.CUMULATIVE;
    const double = { value: { case: 'asDouble', value: 2.5 } };
    expect(metric('counter')).toMatchObject({
      unit: '{thing}',
      description: 'Things',
      data: {
        case: 'sum',
        value: { aggregationTemporality, isMonotonic: true, dataPoints: [double] },
      },
    });
    const integer = { value: { case: 'asInt', value: -3n } };
    expect(metric('up and down')?.data).toMatchObject({
      value: { aggregationTemporality, isMonotonic: false, dataPoints: [integer] },
    });
  });

  it('come with the points of a histogram', () => {
    const point = {
      count: 4n,
      sum: 106.5,
      min: 0.5,
      max: 100,
      explicitBounds: [1, 10],
      bucketCounts: [2n, 1n, 1n],
    };
    expect(metric('histogram')?.data).toMatchObject({
      case: 'histogram',
      value: {
        aggregationTemporality: AggregationTemporality.CUMULATIVE,
        dataPoints: [point],
      },
    });
  });

  it('come with the points of an exponential histogram', () => {
    const { data } = metric('exponential') ?? {};
    expect(data).toMatchObject({
      case: 'exponentialHistogram',
      value: {
        aggregationTemporality: AggregationTemporality.CUMULATIVE,
        dataPoints: [{ count: 4n, sum: 1, min: 0, max: 0.5, zeroCount: 1n }],
      },
    });
    const [point] = data?.case === 'exponentialHistogram' ? data.value.dataPoints : [];
    // Powers of two are the upper bounds of their buckets at any scale from 0 on.
    const index = (value: number) => Math.log2(value) * 2 ** (point?.scale ?? 0) - 1;
    expect(point?.scale).toBeGreaterThan(0);
    expect(point?.positive?.offset).toBe(index(0.25));
    expect(point?.positive?.bucketCounts.at(0)).toBe(2n);
    expect(point?.positive?.bucketCounts.at(index(0.5) - index(0.25))).toBe(1n);
    expect(point?.negative?.bucketCounts).toEqual([]);
  });
});

describe('an attribute', () => {
  it('may hold bytes, maps, nothing, and integers of 64 bits', () => {
    // More than the types of the API allow, but not more than what OTLP does.
    const values = {
      bytes: new Uint8Array([0, 255]),
      nested: { list: [{ deep: 1 }, ['x']], nothing: null },
      largest: Number.MAX_SAFE_INTEGER,
      larger: 2 ** 53,
    };
    const [first] = spansOf(decodeTraces(exportedTraces(values)));
    expect(attributesOf(first?.resource)).toEqual({
      ...values,
      nested: { list: [{ deep: 1 }, ['x']], nothing: undefined },
      larger: 2n ** 53n,
    });
  });

  it('is missing where its holder is', () => {
    expect(attributesOf(undefined)).toEqual({});
  });
});

describe('a request', () => {
  it('may have fields that are not known', () => {
    const span = new BinaryWriter().tag(5, WireType.LengthDelimited).string('known');
    span.tag(99, WireType.Varint).uint64(2n ** 40n);
    span.tag(100, WireType.Bit64).double(1);
    span.tag(101, WireType.Bit32).fixed32(1);
    span.tag(5_000, WireType.LengthDelimited).bytes(new Uint8Array(300));
    span.tag(6, WireType.Varint).int32(SpanKind.SERVER);
    const scopeSpans = new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(span.finish());
    const resource = new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(scopeSpans.finish());
    const body = new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(resource.finish());
    expect(spansOf(decodeTraces(body.finish()))).toMatchObject([
      { resource: undefined, span: { name: 'known', kind: SpanKind.SERVER } },
    ]);
  });

  it('is an error wherever it is cut off', async () => {
    const traces = exportedTraces();
    for (let length = 1; length < traces.length; length++) {
      expect(() => decodeTraces(traces.subarray(0, length))).toThrow(
        `no whole ExportTraceServiceRequest in ${length} bytes: `,
      );
    }
    const metrics = await exportedMetrics();
    expect(() => decodeMetrics(metrics.subarray(0, -1))).toThrow(
      `no whole ExportMetricsServiceRequest in ${metrics.length - 1} bytes: `,
    );
  });

  it('is an error where it is something else', () => {
    expect(() => decodeTraces(Buffer.from('{"resourceSpans":[]}'))).toThrow(
      'no whole ExportTraceServiceRequest in 20 bytes: ',
    );
  });
});
