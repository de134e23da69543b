import type { Histogram } from '@opentelemetry/sdk-metrics';

/** A histogram with explicit boundaries: one accumulation of values in flat arrays. */
export class ExplicitBuckets {
  readonly boundaries: readonly number[];
  /** Values at most as large as the boundary with the same index; the last entry is the rest. */
  readonly counts: number[];
  count = 0;
  sum = 0;
  min = Number.POSITIVE_INFINITY;
  max = Number.NEGATIVE_INFINITY;

  constructor(boundaries: readonly number[]) {
    this.boundaries = boundaries;
    this.counts = new Array<number>(boundaries.length + 1).fill(0);
  }

  record(value: number): void {
    const { boundaries, counts } = this;
    // The lists are short, and most values are near their start: a search by halves is slower.
    let bucket = 0;
    while (bucket < boundaries.length && value > (boundaries[bucket] as number)) bucket++;
    counts[bucket] = (counts[bucket] as number) + 1;
    this.count++;
    this.sum += value;
    if (value < this.min) this.min = value;
    if (value > this.max) this.max = value;
  }

  add(other: ExplicitBuckets): void {
    for (let bucket = 0; bucket < this.counts.length; bucket++) {
      this.counts[bucket] = (this.counts[bucket] as number) + (other.counts[bucket] as number);
    }
    this.count += other.count;
    this.sum += other.sum;
    this.min = Math.min(this.min, other.min);
    this.max = Math.max(this.max, other.max);
  }

  reset(): void {
    this.counts.fill(0);
    this.count = 0;
    this.sum = 0;
    this.min = Number.POSITIVE_INFINITY;
    this.max = Number.NEGATIVE_INFINITY;
  }

  /** The value of an exported point. */
  toValue(): Histogram {
    return {
      min: this.min,
      max: this.max,
      sum: this.sum,
      buckets: { boundaries: [...this.boundaries], counts: [...this.counts] },
      count: this.count,
    };
  }
}
