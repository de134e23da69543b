import {
  AggregationType,
  type DataPoint,
  type Histogram,
  MeterProvider,
  type ViewOptions,
} from '@opentelemetry/sdk-metrics';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import * as INSTRUMENTS from '../../semconv/instruments.js';
import {
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH as ACCEPTED_LENGTH,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT as AVERAGE_IN_FLIGHT,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION as DURATION,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT as MAX_IN_FLIGHT,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY as OCCUPANCY,
} from '../../semconv/metrics.js';
import { PreaggregatedHistograms } from '../../src/histograms/index.js';
import { MAX_DEPTH, VerifyWindowMetrics, VerifyWindowScheduler } from '../../src/index.js';
import { Collected, ManualReader } from '../metrics/collected.js';

/** Where the middle one of all values lies, as a backend works it out of the buckets. */
function medianRange(point: DataPoint<Histogram> | undefined): [number, number] {
  if (point === undefined) throw new Error('there is no point');
  const { boundaries, counts } = point.value.buckets;
  let before = 0;
  const bucket = counts.findIndex((count) => {
    before += count;
    return 2 * before >= point.value.count;
  });
  return [boundaries[bucket - 1] ?? 0, boundaries[bucket] ?? Number.POSITIVE_INFINITY];
}

/** Keeps a pipeline as deep as it goes, each window with this many accepted tokens. */
function work(bridge: VerifyWindowMetrics, depth: number, acceptedTokens = 1): void {
  let ms = 0;
  const scheduler = new VerifyWindowScheduler({ depth, clock: () => ms });
  bridge.observe(scheduler);
  for (let i = 0; i < 10 * depth; i++) {
    if (!scheduler.hasCapacity) {
      const id = i - depth + 1;
      scheduler.completeNext(id, { proposedTokens: 1000, acceptedTokens });
    }
    scheduler.open(i, i);
    if (i >= depth) ms += 1;
  }
  scheduler.close();
}

/** Both ways to record, and what a reader gets of each. */
const ways: [string, () => { bridge: VerifyWindowMetrics; read: () => Promise<Collected> }][] = [
  [
    'on the meter',
    () => {
      const reader = new ManualReader();
      const meterProvider = new MeterProvider({ readers: [reader] });
      return { bridge: new VerifyWindowMetrics({ meterProvider }), read: () => reader.read() };
    },
  ],
  [
    'with a producer',
    () => {
      const histograms = new PreaggregatedHistograms();
      const reader = new ManualReader({ metricProducers: [histograms.producer()] });
      const meterProvider = new MeterProvider({ readers: [reader] });
      return {
        bridge: new VerifyWindowMetrics({ meterProvider, histograms }),
        read: () => reader.read(),
      };
    },
  ],
];

describe.each(ways)('the boundaries of the conventions, %s', (_, setUp) => {
  const pair = fc
    .tuple(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 0, max: 9 }))
    .filter(([left, right]) => left !== right)
    .map(([left, right]) => [2 ** left, 2 ** right] as const);

  async function mediansAt(depth: number): Promise<[number, number][]> {
    const { bridge, read } = setUp();
    work(bridge, depth);
    const collected = await read();
    return [OCCUPANCY, AVERAGE_IN_FLIGHT, MAX_IN_FLIGHT].map((name) =>
      medianRange(collected.histogram(name)[0]),
    );
  }

  test('tell a median of 64 windows from one of 32', async () => {
    const [at32, at64] = [await mediansAt(32), await mediansAt(64)];
    for (const [i, [low, high]] of at64.entries()) {
      expect(low).toBeGreaterThanOrEqual(at32[i]?.[1] ?? Number.NaN);
      expect([low <= 64, high]).toEqual([true, expect.any(Number)]);
      expect(Number.isFinite(high)).toBe(true);
    }
  });

  test('tell any depth from its double', async () => {
    await fc.assert(
      fc.asyncProperty(pair, async ([left, right]) => {
        const [atLeft, atRight] = [await mediansAt(left), await mediansAt(right)];
        expect(atLeft).not.toEqual(atRight);
      }),
      { numRuns: 10 },
    );
  });

  test('tell a median of 48 accepted tokens from one of 32', async () => {
    const medians: [number, number][] = [];
    for (const accepted of [32, 48, 64]) {
      const { bridge, read } = setUp();
      work(bridge, 2, accepted);
      medians.push(medianRange((await read()).histogram(ACCEPTED_LENGTH)[0]));
    }
    const [at32, at48, at64] = medians;
    expect(at48?.[0]).toBeGreaterThanOrEqual(at32?.[1] ?? Number.NaN);
    expect(at64?.[0]).toBeGreaterThanOrEqual(at48?.[1] ?? Number.NaN);
  });
});

test('all boundaries are finite and rise, those of windows to the deepest pipeline', () => {
  for (const instrument of Object.values(INSTRUMENTS)) {
    const { advice } = instrument.options as { advice?: { explicitBucketBoundaries?: number[] } };
    const boundaries = advice?.explicitBucketBoundaries;
    if (boundaries === undefined) continue;
    expect(boundaries.toSorted((a, b) => a - b)).toEqual(boundaries);
    expect(new Set(boundaries).size).toBe(boundaries.length);
    expect(boundaries.every(Number.isFinite)).toBe(true);
    const ofWindows: readonly string[] = [OCCUPANCY, AVERAGE_IN_FLIGHT, MAX_IN_FLIGHT];
    if (ofWindows.includes(instrument.name)) {
      expect(boundaries.at(-1)).toBeGreaterThanOrEqual(MAX_DEPTH);
    }
  }
});

describe('boundaries of its own', () => {
  const rising = fc
    .uniqueArray(fc.double({ min: -1e6, max: 1e6, noNaN: true, noDefaultInfinity: true }), {
      maxLength: 20,
      // 0 and -0 are one boundary.
      comparator: (left, right) => left === right,
    })
    .map((all) => all.sort((a, b) => a - b));
  const values = fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), {
    minLength: 1,
    maxLength: 50,
  });

  test('given to a producer count as a view on the meter does, for its reader alone', async () => {
    await fc.assert(
      fc.asyncProperty(rising, values, async (boundaries, all) => {
        const histograms = new PreaggregatedHistograms();
        const own = histograms.producer({ boundaries: { [DURATION]: boundaries } });
        const other = histograms.producer();
        const recorder = histograms.recorder(
          INSTRUMENTS.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
          {},
        );
        const view: ViewOptions = {
          instrumentName: DURATION,
          aggregation: {
            type: AggregationType.EXPLICIT_BUCKET_HISTOGRAM,
            options: { boundaries },
          },
        };
        const reader = new ManualReader();
        const provider = new MeterProvider({ readers: [reader], views: [view] });
        const { name, options } = INSTRUMENTS.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION;
        const onMeter = provider.getMeter('test').createHistogram(name, options);
        for (const value of all) {
          recorder.record(value);
          onMeter.record(value);
        }
        const pointOf = async (producer: typeof own) => {
          const { resourceMetrics } = await producer.collect();
          return new Collected({ resourceMetrics, errors: [] }).histogram(DURATION)[0]?.value;
        };
        const expected = (await reader.read()).histogram(DURATION)[0]?.value;
        const actual = await pointOf(own);
        expect(actual?.buckets).toEqual(expected?.buckets);
        expect(actual).toMatchObject({ count: all.length, sum: expected?.sum });
        expect((await pointOf(other))?.buckets.boundaries).toEqual(
          options.advice.explicitBucketBoundaries,
        );
      }),
    );
  });

  test('by a view reach the histograms of a bridge on the meter', async () => {
    const boundaries = [1, 48, 300];
    const reader = new ManualReader();
    const views: ViewOptions[] = [
      {
        instrumentName: ACCEPTED_LENGTH,
        aggregation: { type: AggregationType.EXPLICIT_BUCKET_HISTOGRAM, options: { boundaries } },
      },
    ];
    const meterProvider = new MeterProvider({ readers: [reader], views });
    work(new VerifyWindowMetrics({ meterProvider }), 2, 49);
    const [point] = (await reader.read()).histogram(ACCEPTED_LENGTH);
    expect(point?.value.buckets.boundaries).toEqual(boundaries);
    expect(medianRange(point)).toEqual([48, 300]);
  });

  test('are copied', async () => {
    const boundaries = [1, 2];
    const histograms = new PreaggregatedHistograms();
    const producer = histograms.producer({ boundaries: { [ACCEPTED_LENGTH]: boundaries } });
    boundaries[0] = 99;
    work(new VerifyWindowMetrics({ histograms }), 2);
    const { resourceMetrics } = await producer.collect();
    const [point] = new Collected({ resourceMetrics, errors: [] }).histogram(ACCEPTED_LENGTH);
    expect(point?.value.buckets.boundaries).toEqual([1, 2]);
  });

  test.each<[string, unknown]>([
    ['fall', [2, 1]],
    ['repeat themselves', [1, 1]],
    ['are not finite', [1, Number.POSITIVE_INFINITY]],
    ['are not numbers', ['1', '2']],
    ['have a hole', Object.assign(new Array(3), { 0: 1, 2: 2 })],
    ['are no list', 7],
    ['are nothing', null],
  ])('that %s are refused', (_, boundaries) => {
    const given = { boundaries: { [DURATION]: boundaries as number[] } };
    expect(() => new PreaggregatedHistograms().producer(given)).toThrow(RangeError);
  });
});
