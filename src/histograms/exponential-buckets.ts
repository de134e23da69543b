import type { ExponentialHistogram } from '@opentelemetry/sdk-metrics';

/** The finest scale, as the OpenTelemetry SDK specification recommends. */
const MAX_SCALE = 20;

/** The smallest positive double with full precision; what is smaller shares its bucket. */
const MIN_NORMAL = 2 ** -1022;

/**
 * A base-2 exponential histogram of values that are not negative: bucket `i` at scale `s` holds
 * the values in `(2^(i / 2^s), 2^((i + 1) / 2^s)]`. It begins at the finest scale, and halves the
 * resolution whenever its values span more than `maxSize` buckets.
 *
 * Source: OpenTelemetry metrics data model, "ExponentialHistogram".
 */
export class ExponentialBuckets {
  readonly #maxSize: number;
  /** Counts by bucket index; only buckets that are not empty. */
  #counts = new Map<number, number>();
  #low = 0;
  #high = -1;
  #scale = MAX_SCALE;
  #count = 0;
  #zeroCount = 0;
  #sum = 0;
  #min = Number.POSITIVE_INFINITY;
  #max = Number.NEGATIVE_INFINITY;

  constructor(maxSize: number) {
    this.#maxSize = maxSize;
  }

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  record(value: number): void {
    this.#count++;
    this.#min = Math.min(this.#min, value);
    this.#max = Math.max(this.#max, value);
    if (value === 0) {
      this.#zeroCount++;
      return;
    }
    this.#sum += value;
    const index = indexOf(value, this.#scale);
    const change = this.#changeFor(index, index);
    this.#downscale(change);
    this.#increment(change === 0 ? index : indexOf(value, this.#scale), 1);
  }

  add(other: ExponentialBuckets): void {
    this.#count += other.#count;
    this.#zeroCount += other.#zeroCount;
    this.#sum += other.#sum;
    this.#min = Math.min(this.#min, other.#min);
    this.#max = Math.max(this.#max, other.#max);
    if (other.#counts.size === 0) return;
    if (this.#scale > other.#scale) this.#downscale(this.#scale - other.#scale);
    const shift = other.#scale - this.#scale;
    const change = this.#changeFor(other.#low >> shift, other.#high >> shift);
    this.#downscale(change);
    for (const [index, count] of other.#counts) this.#increment(index >> (shift + change), count);
  }

  reset(): void {
    this.#counts = new Map();
    this.#low = 0;
    this.#high = -1;
    this.#scale = MAX_SCALE;
    this.#count = 0;
    this.#zeroCount = 0;
    this.#sum = 0;
    this.#min = Number.POSITIVE_INFINITY;
    this.#max = Number.NEGATIVE_INFINITY;
  }

  /** The value of an exported point. */
  toValue(): ExponentialHistogram {
    const isEmpty = this.#counts.size === 0;
    return {
      min: this.#min,
      max: this.#max,
      sum: this.#sum,
      positive: {
        offset: this.#low,
        bucketCounts: Array.from(
          { length: this.#high - this.#low + 1 },
          (_, bucket) => this.#counts.get(this.#low + bucket) ?? 0,
        ),
      },
      negative: { offset: 0, bucketCounts: [] },
      count: this.#count,
      // Where all values are zero any scale is right.
      scale: isEmpty ? 0 : this.#scale,
      zeroCount: this.#zeroCount,
    };
  }

  /** How often the resolution has to be halved for these indexes to fit in as well. */
  #changeFor(first: number, last: number): number {
    let low = this.#counts.size === 0 ? first : Math.min(first, this.#low);
    let high = this.#counts.size === 0 ? last : Math.max(last, this.#high);
    let change = 0;
    while (high - low >= this.#maxSize) {
      low >>= 1;
      high >>= 1;
      change++;
    }
    return change;
  }

  #downscale(change: number): void {
    if (change === 0) return;
    const counts = this.#counts;
    this.#counts = new Map();
    this.#scale -= change;
    for (const [index, count] of counts) this.#increment(index >> change, count);
  }

  #increment(index: number, by: number): void {
    const isFirst = this.#counts.size === 0;
    this.#low = isFirst ? index : Math.min(this.#low, index);
    this.#high = isFirst ? index : Math.max(this.#high, index);
    this.#counts.set(index, (this.#counts.get(index) ?? 0) + by);
  }
}

const bits = new DataView(new ArrayBuffer(8));

/** The bucket of a positive value at a scale. */
function indexOf(value: number, scale: number): number {
  if (value <= MIN_NORMAL) return (scale > 0 ? -1022 << scale : -1022 >> -scale) - 1;
  bits.setFloat64(0, value);
  const high = bits.getUint32(0);
  const exponent = ((high >>> 20) & 0x7ff) - 1023;
  // A power of two is the upper end of the bucket below it.
  const isPowerOfTwo = (high & 0xfffff) === 0 && bits.getUint32(4) === 0;
  if (scale <= 0) return (isPowerOfTwo ? exponent - 1 : exponent) >> -scale;
  if (isPowerOfTwo) return (exponent << scale) - 1;
  const index = Math.floor(Math.log(value) * Math.LOG2E * 2 ** scale);
  return Math.min(index, (1024 << scale) - 1);
}
