import type { Attributes, Context, Histogram, Meter } from '@opentelemetry/api';
import type { HistogramInstrument } from '../../semconv/instruments.js';

/** One histogram of one attribute set. */
export interface HistogramRecorder {
  /**
   * @param value in the unit of the instrument.
   * @param context of the span that an exemplar would name.
   */
  record(value: number, context?: Context): void;
}

/** A way to record histograms. */
export interface HistogramBackend {
  /** The recorder of an instrument and its attributes, the same for the same ones. */
  recorder(instrument: HistogramInstrument, attributes: Attributes): HistogramRecorder;
}

/** Records on a meter, as any instrumentation does. */
export class MeterHistograms implements HistogramBackend {
  readonly #meter: Meter;
  readonly #histograms = new Map<string, Histogram>();
  /** Whether anything was recorded, so that the meter has points. */
  isUsed = false;

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  recorder({ name, options }: HistogramInstrument, attributes: Attributes): HistogramRecorder {
    let histogram = this.#histograms.get(name);
    if (histogram === undefined) {
      histogram = this.#meter.createHistogram(name, options);
      this.#histograms.set(name, histogram);
    }
    return new MeterRecorder(this, histogram, attributes);
  }
}

class MeterRecorder implements HistogramRecorder {
  readonly #backend: MeterHistograms;
  readonly #histogram: Histogram;
  readonly #attributes: Attributes;

  constructor(backend: MeterHistograms, histogram: Histogram, attributes: Attributes) {
    this.#backend = backend;
    this.#histogram = histogram;
    this.#attributes = attributes;
  }

  record(value: number, context?: Context): void {
    this.#backend.isUsed = true;
    this.#histogram.record(value, this.#attributes, context);
  }
}
