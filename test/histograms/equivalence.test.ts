import { PrometheusSerializer } from '@opentelemetry/exporter-prometheus';
import { ProtobufMetricsSerializer } from '@opentelemetry/otlp-transformer';
import {
  AggregationTemporality,
  AggregationType,
  type MetricProducer,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import {
  type HistogramAggregation,
  type HistogramProducerOptions,
  PreaggregatedHistograms,
} from '../../src/histograms/index.js';
import { VerifyWindowMetrics, VerifyWindowScheduler } from '../../src/index.js';
import { ManualReader, providerWith } from '../metrics/collected.js';

const EXPONENTIAL: HistogramAggregation = {
  type: AggregationType.EXPONENTIAL_HISTOGRAM,
  options: { maxSize: 20 },
};
const OTHER_BOUNDARIES: HistogramAggregation = {
  type: AggregationType.EXPLICIT_BUCKET_HISTOGRAM,
  options: { boundaries: [0.5, 2.5], recordMinMax: false },
};

/** What the readers of both ways ask for; both get the same. */
const READERS: readonly HistogramProducerOptions[] = [
  { temporality: AggregationTemporality.CUMULATIVE },
  { temporality: AggregationTemporality.DELTA },
  { temporality: AggregationTemporality.CUMULATIVE, aggregation: EXPONENTIAL },
  { temporality: AggregationTemporality.DELTA, aggregation: EXPONENTIAL },
  { temporality: AggregationTemporality.DELTA, aggregation: OTHER_BOUNDARIES },
];

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: 1_700_000_000_000 });
});
afterEach(() => {
  vi.useRealTimers();
});

/** Both ways to record, each with its own provider and the same readers. */
function bothWays(options: readonly HistogramProducerOptions[]) {
  const readersWith = (producers?: MetricProducer[]) =>
    options.map(
      ({ temporality = AggregationTemporality.CUMULATIVE, aggregation }, index) =>
        new ManualReader({
          aggregationTemporalitySelector: () => temporality,
          ...(aggregation !== undefined && {
            // Only histograms: the counters are to stay counters.
            aggregationSelector: (type) =>
              type === 'HISTOGRAM' ? aggregation : { type: AggregationType.DEFAULT },
          }),
          metricProducers: producers?.slice(index, index + 1) ?? [],
        }),
    );
  const histograms = new PreaggregatedHistograms();
  const meterReaders = readersWith();
  const producerReaders = readersWith(options.map((each) => histograms.producer(each)));
  const bridges = [
    new VerifyWindowMetrics({ meterProvider: providerWith(...meterReaders) }),
    new VerifyWindowMetrics({ meterProvider: providerWith(...producerReaders), histograms }),
  ];
  return { bridges, meterReaders, producerReaders };
}

/** The same metrics in one scope and in one order, as neither is a promise. */
function inOrder({ resource, scopeMetrics }: ResourceMetrics): ResourceMetrics {
  const metrics = scopeMetrics
    .flatMap((scope) => scope.metrics)
    .map((metric) => ({
      ...metric,
      dataPoints: [...metric.dataPoints].sort((a, b) =>
        JSON.stringify(a.attributes) < JSON.stringify(b.attributes) ? -1 : 1,
      ),
    }))
    .sort((a, b) => (a.descriptor.name < b.descriptor.name ? -1 : 1));
  const [first] = scopeMetrics;
  return {
    resource,
    scopeMetrics: first === undefined ? [] : [{ scope: first.scope, metrics: metrics as never }],
  };
}

const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      action: fc.constant('work' as const),
      which: fc.nat(2),
      // No zero: where an interval has nothing else, the SDK's merge of exponential histograms
      // falls to scale 0 for good, which is not to be copied.
      accepted: fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 1, maxLength: 12 }),
      // Sixty-fourths of a second, whose sums are exact in any order: the SDK adds up anew for
      // each reader, the producers share a sum.
      ms: fc.integer({ min: 1, max: 1000 }).map((count) => count * 15.625),
    }),
  },
  { weight: 1, arbitrary: fc.record({ action: fc.constant('close' as const), which: fc.nat(2) }) },
  {
    weight: 4,
    arbitrary: fc.record({ action: fc.constant('collect' as const), reader: fc.nat(1) }),
  },
);

test('both ways export the same bytes, to every reader', async () => {
  const readers = fc.subarray([...READERS], { minLength: 2, maxLength: 2 });
  await fc.assert(
    fc.asyncProperty(readers, fc.array(step, { maxLength: 40 }), async (options, steps) => {
      const { bridges, meterReaders, producerReaders } = bothWays(options);
      let ms = 0;
      /** By number: one scheduler for each way, as each is counted once. */
      const schedulers = new Map<number, readonly VerifyWindowScheduler[]>();
      const twins = (which: number) =>
        bridges.map((bridge) => {
          const scheduler = new VerifyWindowScheduler({ depth: 2, clock: () => ms });
          bridge.observe(scheduler, which === 0 ? {} : { which });
          return scheduler;
        });
      const compare = async (reader: number) => {
        const [meter, producer] = [meterReaders[reader], producerReaders[reader]];
        const expected = inOrder((await meter?.collect())?.resourceMetrics as ResourceMetrics);
        const actual = inOrder((await producer?.collect())?.resourceMetrics as ResourceMetrics);
        expectSameBytes(actual, expected, options[reader]?.aggregation !== EXPONENTIAL);
      };

      for (const each of steps) {
        if (each.action === 'collect') {
          await compare(each.reader);
        } else if (each.action === 'close') {
          for (const scheduler of schedulers.get(each.which) ?? []) scheduler.close();
          schedulers.delete(each.which);
        } else {
          const { which } = each;
          const both = schedulers.get(which) ?? twins(which);
          schedulers.set(which, both);
          for (const acceptedTokens of each.accepted) {
            const ids = both.map((scheduler) => scheduler.open(1, 1).id);
            ms += each.ms;
            vi.setSystemTime(Date.now() + Math.ceil(each.ms));
            for (const [index, scheduler] of both.entries()) {
              scheduler.completeNext(ids[index] ?? 0, { proposedTokens: 8, acceptedTokens });
            }
          }
        }
      }
      for (const reader of options.keys()) await compare(reader);
    }),
    { numRuns: 60 },
  );
}, 60_000);

function expectSameBytes(
  actual: ResourceMetrics,
  expected: ResourceMetrics,
  prometheusToo: boolean,
): void {
  expect(ProtobufMetricsSerializer.serializeRequest(actual)).toEqual(
    ProtobufMetricsSerializer.serializeRequest(expected),
  );
  // The Prometheus exporter writes no exponential histograms.
  if (!prometheusToo) return;
  const prometheus = new PrometheusSerializer('', true);
  expect(prometheus.serialize(actual)).toBe(prometheus.serialize(expected));
}
