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
import { VerifyWindowMetrics, VerifyWindowScheduler } from '../../src/index.js';
import {
  type HistogramAggregation,
  type HistogramProducerOptions,
  PreaggregatedHistograms,
} from '../../src/producer/index.js';
import { SCOPE_NAME, SCOPE_VERSION } from '../../src/scope.js';
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
function bothWays() {
  const readersWith = (producers?: MetricProducer[]) =>
    READERS.map(
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
  const producerReaders = readersWith(READERS.map((options) => histograms.producer(options)));
  const meterOf = (readers: ManualReader[]) =>
    providerWith(...readers).getMeter(SCOPE_NAME, SCOPE_VERSION);
  const bridges = [
    new VerifyWindowMetrics({ meter: meterOf(meterReaders) }),
    new VerifyWindowMetrics({ meter: meterOf(producerReaders), histograms }),
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
    weight: 6,
    arbitrary: fc.record({
      action: fc.constant('work' as const),
      which: fc.nat(2),
      accepted: fc.nat(8),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      action: fc.constant('pass' as const),
      ms: fc.double({ min: 0, max: 20_000, noNaN: true }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ action: fc.constant('close' as const), which: fc.nat(2) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      action: fc.constant('collect' as const),
      reader: fc.nat(READERS.length - 1),
    }),
  },
);

test('both ways export the same bytes, to every reader', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const { bridges, meterReaders, producerReaders } = bothWays();
      let ms = 0;
      const schedulers: VerifyWindowScheduler[] = [];
      const start = (which: number) => {
        const scheduler = new VerifyWindowScheduler({ depth: 2 + which, clock: () => ms });
        for (const bridge of bridges) bridge.observe(scheduler, which === 0 ? {} : { which });
        schedulers[which] = scheduler;
        return scheduler;
      };
      const compare = async (reader: number) => {
        const [meter, producer] = [meterReaders[reader], producerReaders[reader]];
        const expected = inOrder((await meter?.collect())?.resourceMetrics as ResourceMetrics);
        const actual = inOrder((await producer?.collect())?.resourceMetrics as ResourceMetrics);
        expect(ProtobufMetricsSerializer.serializeRequest(actual)).toEqual(
          ProtobufMetricsSerializer.serializeRequest(expected),
        );
        if (READERS[reader]?.aggregation !== EXPONENTIAL) {
          const prometheus = new PrometheusSerializer('', true);
          expect(prometheus.serialize(actual)).toBe(prometheus.serialize(expected));
        }
      };

      for (const each of steps) {
        if (each.action === 'pass') {
          ms += each.ms;
          vi.setSystemTime(Date.now() + Math.round(each.ms));
        } else if (each.action === 'collect') {
          await compare(each.reader);
        } else if (each.action === 'close') {
          schedulers[each.which]?.close();
          delete schedulers[each.which];
        } else {
          const scheduler = schedulers[each.which] ?? start(each.which);
          if (scheduler.hasCapacity) scheduler.open(1, 1);
          else {
            const { opened } = scheduler.stats();
            scheduler.completeNext(opened - scheduler.inFlight + 1, {
              proposedTokens: 8,
              acceptedTokens: each.accepted,
            });
          }
        }
      }
      for (const reader of READERS.keys()) await compare(reader);
    }),
    { numRuns: 50 },
  );
}, 60_000);
