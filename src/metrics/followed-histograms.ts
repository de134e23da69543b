import { createNoopMeter, type Histogram, type Meter } from '@opentelemetry/api';
import type { HistogramInstrument } from '../../semconv/instruments.js';
import { createHistograms } from './create-histograms.js';
import { MeterSource } from './meter-source.js';

/** Histograms of the present provider's meter, also where it is registered late. */
export class FollowedHistograms<Key extends string> {
  readonly #source: MeterSource;
  readonly #instruments: Readonly<Record<Key, HistogramInstrument>>;
  #histograms: Record<Key, Histogram>;

  constructor(instruments: Readonly<Record<Key, HistogramInstrument>>, meter?: Meter) {
    this.#source = new MeterSource(meter);
    this.#instruments = instruments;
    this.#histograms = createHistograms(createNoopMeter(), instruments);
  }

  get(key: Key): Histogram {
    const meter = this.#source.takeChange();
    if (meter !== undefined) this.#histograms = createHistograms(meter, this.#instruments);
    return this.#histograms[key];
  }
}
