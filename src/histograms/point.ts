import type { Attributes, HrTime } from '@opentelemetry/api';
import type { DataPoint, ExponentialHistogram, Histogram } from '@opentelemetry/sdk-metrics';
import type { HistogramInstrument } from '../../semconv/instruments.js';
import { ExplicitBuckets } from './explicit-buckets.js';
import type { HistogramRecorder } from './histogram-backend.js';

/** Sums up the values of one histogram, in one or the other kind of buckets. */
export interface Buckets {
  readonly isEmpty: boolean;
  record(value: number): void;
  add(other: Buckets): void;
  reset(): void;
  toValue(): Histogram | ExponentialHistogram;
}

/** A finished point, as a reader hands it to its exporter. */
export type HistogramPoint = DataPoint<Histogram | ExponentialHistogram>;

export interface PointOptions {
  readonly attributes: Attributes;
  readonly isCumulative: boolean;
  readonly recordMinMax: boolean;
  /** Whether the buckets are not those of the instrument, so that values are recorded here too. */
  readonly isDirect: boolean;
  createBuckets(): Buckets;
}

/** One histogram of one attribute set, as one reader sees it. */
export class Point {
  readonly isDirect: boolean;
  readonly #attributes: Attributes;
  readonly #isCumulative: boolean;
  readonly #recordMinMax: boolean;
  /** Values since the last flush, of a point that counts by itself. */
  readonly #recent: Buckets;
  /** Values that were handed over since the last collection. */
  readonly #pending: Buckets;
  #pendingStartMs = 0;
  /** Values of all collections so far, where they are cumulative. */
  readonly #total: Buckets;
  #totalStartMs = 0;
  #wasReported = false;

  constructor({ attributes, isCumulative, recordMinMax, isDirect, createBuckets }: PointOptions) {
    this.isDirect = isDirect;
    this.#attributes = attributes;
    this.#isCumulative = isCumulative;
    this.#recordMinMax = recordMinMax;
    this.#recent = createBuckets();
    this.#pending = createBuckets();
    this.#total = createBuckets();
  }

  record(value: number): void {
    this.#recent.record(value);
  }

  /** Takes over what was recorded since the last flush, the first of it at `startMs`. */
  take(recent: ExplicitBuckets, startMs: number): void {
    if (this.#pending.isEmpty) this.#pendingStartMs = startMs;
    this.#pending.add(this.isDirect ? this.#recent : recent);
    this.#recent.reset();
  }

  /**
   * The point to export, or `undefined` where there is none.
   *
   * A cumulative point begins with its first value. A delta point begins where the one before it
   * ended; after an interval without values there is none before it, and it begins with its first
   * value.
   */
  collect(nowMs: number, lastCollectionMs: number): HistogramPoint | undefined {
    if (this.#isCumulative) {
      if (this.#total.isEmpty) this.#totalStartMs = this.#pendingStartMs;
      // The wall clock may have been set back meanwhile. It begins there from now on, and once only:
      // where a point begins anew, backends count all of it again.
      this.#totalStartMs = Math.min(this.#totalStartMs, nowMs);
      this.#total.add(this.#pending);
      this.#pending.reset();
      return this.#total.isEmpty ? undefined : this.#point(this.#total, this.#totalStartMs, nowMs);
    }
    if (this.#pending.isEmpty) {
      this.#wasReported = false;
      return undefined;
    }
    const startMs = this.#wasReported ? lastCollectionMs : this.#pendingStartMs;
    const point = this.#point(this.#pending, Math.min(startMs, nowMs), nowMs);
    this.#pending.reset();
    this.#wasReported = true;
    return point;
  }

  #point(buckets: Buckets, startMs: number, endMs: number): HistogramPoint {
    const value = buckets.toValue();
    return {
      attributes: this.#attributes,
      startTime: toHrTime(startMs),
      endTime: toHrTime(endMs),
      value: this.#recordMinMax ? value : withoutMinMax(value),
    };
  }
}

function withoutMinMax(value: Histogram | ExponentialHistogram): Histogram | ExponentialHistogram {
  const { min, max, ...rest } = value;
  return rest;
}

/** Milliseconds since 1970 as the SDK's seconds and nanoseconds. */
function toHrTime(ms: number): HrTime {
  return [Math.trunc(ms / 1000), Math.round((ms % 1000) * 1e6)];
}

/** Makes a reader's point of a recorder; `undefined` where that reader drops histograms. */
export interface PointSource {
  addPoint(instrument: HistogramInstrument, attributes: Attributes): Point | undefined;
}

/**
 * One histogram of one attribute set, where its values are recorded. They are counted once, and
 * handed to the points of all readers when one of them collects.
 */
export class PointRecorder implements HistogramRecorder {
  readonly #instrument: HistogramInstrument;
  readonly #attributes: Attributes;
  readonly #recent: ExplicitBuckets;
  #recentStartMs = 0;
  readonly #points: Point[] = [];
  /** Points whose buckets are not those of the instrument, and that count every value anew. */
  #directPoints: Point[] | undefined;

  constructor(instrument: HistogramInstrument, attributes: Attributes) {
    this.#instrument = instrument;
    this.#attributes = attributes;
    this.#recent = new ExplicitBuckets(instrument.options.advice.explicitBucketBoundaries);
  }

  addProducer(producer: PointSource): void {
    const point = producer.addPoint(this.#instrument, this.#attributes);
    if (point === undefined) return;
    this.#points.push(point);
    if (point.isDirect) this.#directPoints = [...(this.#directPoints ?? []), point];
  }

  record(value: number): void {
    // As in the SDK: NaN falls into no bucket, and a histogram takes no negative value.
    if (!(value >= 0)) return;
    if (this.#recent.isEmpty) this.#recentStartMs = Date.now();
    this.#recent.record(value);
    if (this.#directPoints !== undefined)
      for (const point of this.#directPoints) point.record(value);
  }

  /** Hands what was recorded since the last time to every reader's point. */
  flush(): void {
    if (this.#recent.isEmpty) return;
    for (const point of this.#points) point.take(this.#recent, this.#recentStartMs);
    this.#recent.reset();
  }
}
