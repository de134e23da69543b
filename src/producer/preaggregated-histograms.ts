import type { Attributes } from '@opentelemetry/api';
import {
  forEachHistogram,
  type HistogramBackend,
  type WindowHistograms,
} from '../metrics/window-histograms.js';
import { HistogramProducer, type HistogramProducerOptions } from './histogram-producer.js';
import { PointRecorder } from './point-recorder.js';

/**
 * Counts the histograms of {@link VerifyWindowMetrics} into its own buckets, for a few
 * nanoseconds a value, and hands finished points to a reader. For each reader make one producer,
 * before the first window is recorded: a producer starts empty.
 *
 * Views of the MeterProvider do not see these histograms; an aggregation and a temporality are
 * chosen by the reader's exporter, or by the producer's options.
 *
 * @example
 * const histograms = new PreaggregatedHistograms();
 * const metrics = new VerifyWindowMetrics({ histograms });
 * const exporter = new OTLPMetricExporter();
 * const reader = new PeriodicExportingMetricReader({
 *   exporter,
 *   metricProducers: [histograms.producer({ exporter })],
 * });
 */
export class PreaggregatedHistograms implements HistogramBackend {
  readonly #recorders: PointRecorder[] = [];
  readonly #producers: HistogramProducer[] = [];

  /**
   * Makes the producer for one reader.
   *
   * @throws {RangeError} for a `maxSize` of exponential histograms that is no integer of at least 2.
   */
  producer(options: HistogramProducerOptions = {}): HistogramProducer {
    // What was recorded before belongs to the producers before.
    this.#flush();
    const producer = new HistogramProducer(options, () => this.#flush());
    this.#producers.push(producer);
    for (const recorder of this.#recorders) recorder.addProducer(producer);
    return producer;
  }

  bind(attributes: Attributes): WindowHistograms {
    return forEachHistogram((instrument) => {
      const recorder = new PointRecorder(instrument, attributes);
      this.#recorders.push(recorder);
      for (const producer of this.#producers) recorder.addProducer(producer);
      return recorder;
    });
  }

  /** The points belong to no meter. */
  useMeter(): void {}

  #flush(): void {
    for (const recorder of this.#recorders) recorder.flush();
  }
}
