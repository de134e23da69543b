import type { Attributes } from '@opentelemetry/api';
import type { HistogramInstrument } from '../../semconv/instruments.js';
import type { HistogramRecorder } from '../metrics/window-histograms.js';
import { ExplicitBuckets } from './explicit-buckets.js';
import type { HistogramProducer } from './histogram-producer.js';
import type { Point } from './point.js';

/**
 * One histogram of one attribute set, where its values are recorded. They are counted once, and
 * handed to the producers of all readers when one of them collects.
 */
export class PointRecorder implements HistogramRecorder {
  readonly instrument: HistogramInstrument;
  readonly attributes: Attributes;
  readonly #recent: ExplicitBuckets;
  #recentStartMs = 0;
  readonly #points: Point[] = [];
  /** Points whose buckets are not those of the instrument, and that count every value anew. */
  #directPoints: Point[] | undefined;

  constructor(instrument: HistogramInstrument, attributes: Attributes) {
    this.instrument = instrument;
    this.attributes = attributes;
    this.#recent = new ExplicitBuckets(instrument.options.advice.explicitBucketBoundaries);
  }

  addProducer(producer: HistogramProducer): void {
    const point = producer.addPoint(this);
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

  /** Hands what was recorded since the last time to every reader's producer. */
  flush(): void {
    if (this.#recent.isEmpty) return;
    for (const point of this.#points) point.take(this.#recent, this.#recentStartMs);
    this.#recent.reset();
  }
}
