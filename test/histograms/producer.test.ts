import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import {
  AggregationTemporality,
  AggregationType,
  type DataPoint,
  type ExponentialHistogram,
  type HistogramMetricData,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ATTR_OTEL_METRIC_OVERFLOW } from '../../semconv/attributes.js';
import {
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
} from '../../semconv/instruments.js';
import {
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH as ACCEPTED_LENGTH,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION as DURATION,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY as OCCUPANCY,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED as OPENED,
} from '../../semconv/metrics.js';
import { PreaggregatedHistograms } from '../../src/histograms/index.js';
import { VerifyWindowMetrics, VerifyWindowScheduler } from '../../src/index.js';
import { Collected, ManualReader, providerWith } from '../metrics/collected.js';

/** Opens and completes this many windows on a new scheduler. */
function work(bridge: VerifyWindowMetrics, windows: number, attributes = {}): void {
  const scheduler = new VerifyWindowScheduler({ depth: 2 });
  bridge.observe(scheduler, attributes);
  for (let id = 1; id <= windows; id++) {
    scheduler.open(id, id);
    scheduler.completeNext(id, { proposedTokens: 4, acceptedTokens: id % 5 });
  }
  scheduler.close();
}

describe('a real reader', () => {
  test('that exports periodically gets the histograms as its exporter prefers them', async () => {
    const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
    const histograms = new PreaggregatedHistograms();
    const reader = new PeriodicExportingMetricReader({
      exporter,
      metricProducers: [histograms.producer({ exporter })],
    });
    const provider = new MeterProvider({ readers: [reader] });
    const bridge = new VerifyWindowMetrics({ meterProvider: provider, histograms });
    const counts: number[] = [];
    for (const windows of [3, 2]) {
      work(bridge, windows);
      exporter.reset();
      await provider.forceFlush();
      const [resourceMetrics] = exporter.getMetrics();
      const metrics = resourceMetrics?.scopeMetrics.flatMap((scope) => scope.metrics) ?? [];
      const duration = metrics.find(({ descriptor }) => descriptor.name === DURATION);
      expect(duration?.aggregationTemporality).toBe(AggregationTemporality.DELTA);
      counts.push((duration as HistogramMetricData).dataPoints[0]?.value.count ?? 0);
    }
    expect(counts).toEqual([3, 2]);
    await provider.shutdown();
  });

  test('of Prometheus serves the histograms beside the counters', async () => {
    const histograms = new PreaggregatedHistograms();
    const exporter = new PrometheusExporter({
      preventServerStart: true,
      metricProducers: [histograms.producer()],
    });
    const provider = new MeterProvider({ readers: [exporter] });
    const bridge = new VerifyWindowMetrics({ meterProvider: provider, histograms });
    work(bridge, 3);
    const collected = new Collected(await exporter.collect());
    expect(collected.sum(OPENED)).toBe(3);
    expect(collected.count(DURATION)).toBe(3);
    await provider.shutdown();
  });

  test('that gives up on a callback gets the histograms all the same', async () => {
    const histograms = new PreaggregatedHistograms();
    const reader = new ManualReader({ metricProducers: [histograms.producer()] });
    const meterProvider = providerWith(reader);
    const bridge = new VerifyWindowMetrics({ meterProvider, histograms });
    meterProvider
      .getMeter('test')
      .createObservableGauge('stuck')
      .addCallback(() => new Promise(() => {}));
    work(bridge, 3);
    const result = await reader.collect({ timeoutMillis: 1 });
    expect(result.errors).toHaveLength(1);
    expect(new Collected(result).count(DURATION)).toBe(3);
  });
});

describe('a producer', () => {
  test('made late begins empty, and leaves the others what is theirs', async () => {
    const histograms = new PreaggregatedHistograms();
    const early = new ManualReader({ metricProducers: [histograms.producer()] });
    const bridge = new VerifyWindowMetrics({
      meterProvider: providerWith(early),
      histograms,
    });
    work(bridge, 3);
    const late = new ManualReader({ metricProducers: [histograms.producer()] });
    providerWith(late);
    expect((await late.read()).names).toEqual([]);
    work(bridge, 2);
    expect((await late.read()).count(DURATION)).toBe(2);
    expect((await early.read()).count(DURATION)).toBe(5);
  });

  test('of a dropped aggregation hands over nothing', async () => {
    const histograms = new PreaggregatedHistograms();
    const producer = histograms.producer({ aggregation: { type: AggregationType.DROP } });
    work(new VerifyWindowMetrics({ histograms }), 3);
    expect((await producer.collect()).resourceMetrics.scopeMetrics).toEqual([]);
  });

  test.each([
    [{ type: AggregationType.SUM }, 'got SUM'],
    [{ type: AggregationType.LAST_VALUE }, 'got LAST_VALUE'],
    [
      { type: AggregationType.EXPONENTIAL_HISTOGRAM, options: { maxSize: 1 } },
      'maxSize of an exponential histogram must be an integer of at least 2, got 1',
    ],
  ] as const)('is not made with %j', (aggregation, message) => {
    expect(() => new PreaggregatedHistograms().producer({ aggregation })).toThrow(message);
  });

  test('keeps attribute sets past the limit together', async () => {
    const histograms = new PreaggregatedHistograms();
    const reader = new ManualReader({ metricProducers: [histograms.producer()] });
    const meterProvider = providerWith(reader);
    const bridge = new VerifyWindowMetrics({ meterProvider, histograms, maxAttributeSets: 1 });
    for (const tenant of ['a', 'b', 'c']) work(bridge, 2, { tenant });
    const points = (await reader.read()).histogram(OCCUPANCY);
    expect(points.map(({ attributes, value }) => [attributes, value.count])).toEqual([
      [{ tenant: 'a' }, 2],
      [{ [ATTR_OTEL_METRIC_OVERFLOW]: true }, 4],
    ]);
  });
});

describe('an exponential histogram', () => {
  const aggregation = (maxSize: number) =>
    ({ type: AggregationType.EXPONENTIAL_HISTOGRAM, options: { maxSize } }) as const;

  test('is that of the SDK, for any values that are not subnormal', async () => {
    const value = fc.oneof(
      fc.double({ min: 1e-200, max: 1e200, noNaN: true }),
      fc.double({ min: 1e-6, max: 100, noNaN: true }),
      fc.integer({ min: -300, max: 300 }).map((exponent) => 2 ** exponent),
      fc.constant(0),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(value, { minLength: 1, maxLength: 50 }),
        fc.integer({ min: 2, max: 160 }),
        async (values, maxSize) => {
          const histograms = new PreaggregatedHistograms();
          const producer = histograms.producer({ aggregation: aggregation(maxSize) });
          const duration = histograms.recorder(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION, {});
          const reader = new ManualReader({ aggregationSelector: () => aggregation(maxSize) });
          const expected = providerWith(reader).getMeter('test').createHistogram(DURATION);
          for (const each of values) {
            duration.record(each);
            expected.record(each);
          }
          const resourceMetrics = (await producer.collect()).resourceMetrics;
          const actual = new Collected({ resourceMetrics, errors: [] });
          expect(actual.points(DURATION).map((point) => point.value)).toEqual(
            (await reader.read()).points(DURATION).map((point) => point.value),
          );
        },
      ),
      { numRuns: 300 },
    );
  });

  test('keeps its resolution over an interval of nothing but zeros', async () => {
    const histograms = new PreaggregatedHistograms();
    const producer = histograms.producer({ aggregation: aggregation(160) });
    const acceptedLength = histograms.recorder(
      INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
      {},
    );
    const scales: number[] = [];
    for (const value of [3, 0, 3]) {
      acceptedLength.record(value);
      const { resourceMetrics } = await producer.collect();
      const [point] = new Collected({ resourceMetrics, errors: [] }).points(ACCEPTED_LENGTH);
      expect(point).toBeDefined();
      scales.push((point as unknown as DataPoint<ExponentialHistogram>).value.scale);
    }
    expect(scales).toEqual([20, 20, 20]);
  });

  test.each([Number.NaN, -1])('takes no %s', async (value) => {
    const histograms = new PreaggregatedHistograms();
    const producer = histograms.producer({ aggregation: aggregation(160) });
    histograms.recorder(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION, {}).record(value);
    expect((await producer.collect()).resourceMetrics.scopeMetrics).toEqual([]);
  });
});
