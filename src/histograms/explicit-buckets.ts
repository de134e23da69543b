import type { Histogram } from '@opentelemetry/sdk-metrics';

/**
 * A histogram with explicit boundaries: one accumulation of values.
 *
 * Everything is kept in arrays of doubles, whatever the values are: `record` is the hottest code
 * of this package, and stays fast only as long as V8 sees one kind of number in it.
 */
export class ExplicitBuckets {
  readonly #boundaries: Float64Array;
  /** Values at most as large as the boundary with the same index; the last entry is the rest. */
  readonly #counts: Float64Array;
  /** Sum, smallest and largest value. */
  readonly #range = new Float64Array(3);
  isEmpty = true;

  constructor(boundaries: readonly number[]) {
    this.#boundaries = Float64Array.from(boundaries);
    this.#counts = new Float64Array(boundaries.length + 1);
    this.reset();
  }

  record(value: number): void {
    const boundaries = this.#boundaries;
    const counts = this.#counts;
    const range = this.#range;
    // The lists are short, and most values are near their start: a search by halves is slower.
    let bucket = 0;
    while (bucket < boundaries.length && value > (boundaries[bucket] as number)) bucket++;
    counts[bucket] = (counts[bucket] as number) + 1;
    range[SUM] = (range[SUM] as number) + value;
    if (value < (range[MIN] as number)) range[MIN] = value;
    if (value > (range[MAX] as number)) range[MAX] = value;
    this.isEmpty = false;
  }

  add(other: ExplicitBuckets): void {
    other.#counts.forEach((count, bucket) => {
      this.#counts[bucket] = (this.#counts[bucket] as number) + count;
    });
    const [sum = 0, min = Number.POSITIVE_INFINITY, max = Number.NEGATIVE_INFINITY] = other.#range;
    this.#range[SUM] = (this.#range[SUM] as number) + sum;
    this.#range[MIN] = Math.min(this.#range[MIN] as number, min);
    this.#range[MAX] = Math.max(this.#range[MAX] as number, max);
    this.isEmpty &&= other.isEmpty;
  }

  reset(): void {
    this.#counts.fill(0);
    this.#range.set([0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]);
    this.isEmpty = true;
  }

  /** The value of an exported point. */
  toValue(): Histogram {
    const [sum = 0, min = 0, max = 0] = this.#range;
    return {
      min,
      max,
      sum,
      buckets: { boundaries: [...this.#boundaries], counts: [...this.#counts] },
      count: this.#counts.reduce((total, count) => total + count, 0),
    };
  }
}

/** Places in the range. */
const SUM = 0;
const MIN = 1;
const MAX = 2;
