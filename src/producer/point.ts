import type { Attributes, HrTime } from '@opentelemetry/api';
import type { DataPoint, ExponentialHistogram, Histogram } from '@opentelemetry/sdk-metrics';
import type { ExplicitBuckets } from './explicit-buckets.js';

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
      this.#total.add(this.#pending);
      this.#pending.reset();
      return this.#total.isEmpty ? undefined : this.#point(this.#total, this.#totalStartMs, nowMs);
    }
    if (this.#pending.isEmpty) {
      this.#wasReported = false;
      return undefined;
    }
    const startMs = this.#wasReported ? lastCollectionMs : this.#pendingStartMs;
    const point = this.#point(this.#pending, startMs, nowMs);
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
