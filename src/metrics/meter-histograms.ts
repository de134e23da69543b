import { type Attributes, createNoopMeter, type Histogram, type Meter } from '@opentelemetry/api';
import { createHistograms } from './create-histograms.js';
import {
  forEachHistogram,
  HISTOGRAMS,
  type HistogramBackend,
  type HistogramKey,
  type HistogramRecorder,
  type WindowHistograms,
} from './window-histograms.js';

/** Records the histograms on the meter, as any instrumentation does. */
export class MeterHistograms implements HistogramBackend {
  #instruments = createHistograms(createNoopMeter(), HISTOGRAMS);
  readonly #recorders: MeterRecorder[] = [];

  bind(attributes: Attributes): WindowHistograms {
    return forEachHistogram((_, key) => {
      const recorder = new MeterRecorder(key, this.#instruments[key], attributes);
      this.#recorders.push(recorder);
      return recorder;
    });
  }

  useMeter(meter: Meter): void {
    this.#instruments = createHistograms(meter, HISTOGRAMS);
    for (const recorder of this.#recorders) recorder.histogram = this.#instruments[recorder.key];
  }
}

class MeterRecorder implements HistogramRecorder {
  readonly key: HistogramKey;
  histogram: Histogram;
  readonly #attributes: Attributes;

  constructor(key: HistogramKey, histogram: Histogram, attributes: Attributes) {
    this.key = key;
    this.histogram = histogram;
    this.#attributes = attributes;
  }

  record(value: number): void {
    this.histogram.record(value, this.#attributes);
  }
}
