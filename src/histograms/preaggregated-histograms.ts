import type { Attributes } from '@opentelemetry/api';
import type { HistogramInstrument } from '../../semconv/instruments.js';
import { keyOf } from '../attribute-sets.js';
import type { HistogramBackend, HistogramRecorder } from './histogram-backend.js';
import { HistogramProducer, type HistogramProducerOptions } from './histogram-producer.js';
import { PointRecorder } from './point.js';

/**
 * Counts the histograms of this package into its own buckets, for a few nanoseconds a value, and
 * hands finished points to a reader. For each reader make one producer, before the first window is
 * recorded: a producer starts empty. One of these may serve any number of telemetry objects.
 *
 * Views of the MeterProvider do not see these histograms; an aggregation and a temporality are
 * chosen by the reader's exporter, or by the producer's options.
 *
 * @example
 * const histograms = new PreaggregatedHistograms();
 * const telemetry = new PipelineTelemetry({ histograms });
 * const exporter = new OTLPMetricExporter();
 * const reader = new PeriodicExportingMetricReader({
 *   exporter,
 *   metricProducers: [histograms.producer({ exporter })],
 * });
 */
export class PreaggregatedHistograms implements HistogramBackend {
  /** By instrument and attributes: whoever records the same series adds to the same point. */
  readonly #recorders = new Map<string, PointRecorder>();
  readonly #producers: HistogramProducer[] = [];

  /**
   * Makes the producer for one reader.
   *
   * @throws {RangeError} if `maxSize` of exponential histograms is not an integer of at least 2, and
   * if `boundaries` are not finite numbers that rise.
   */
  producer(options?: HistogramProducerOptions): HistogramProducer {
    // What was recorded before belongs to the producers before.
    this.#flush();
    const producer = new HistogramProducer(options ?? {}, () => this.#flush());
    this.#producers.push(producer);
    for (const recorder of this.#recorders.values()) recorder.addProducer(producer);
    return producer;
  }

  recorder(instrument: HistogramInstrument, attributes: Attributes): HistogramRecorder {
    const key = instrument.name + keyOf(attributes);
    const known = this.#recorders.get(key);
    if (known !== undefined) return known;
    const recorder = new PointRecorder(instrument, attributes);
    this.#recorders.set(key, recorder);
    for (const producer of this.#producers) recorder.addProducer(producer);
    return recorder;
  }

  #flush(): void {
    for (const recorder of this.#recorders.values()) recorder.flush();
  }
}
