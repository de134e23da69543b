import type { Histogram, Meter } from '@opentelemetry/api';
import type { HistogramInstrument } from '../../semconv/instruments.js';

/** The histograms of these instruments on a meter, by the same keys. */
export function createHistograms<Key extends string>(
  meter: Meter,
  instruments: Readonly<Record<Key, HistogramInstrument>>,
): Record<Key, Histogram> {
  const entries = Object.entries<HistogramInstrument>(instruments);
  return Object.fromEntries(
    entries.map(([key, { name, options }]) => [key, meter.createHistogram(name, options)]),
  ) as Record<Key, Histogram>;
}
