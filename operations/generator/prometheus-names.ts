import type { Instrument } from '../../semconv/instruments.js';

/** What Prometheus appends for a unit; units in braces, and `1` of what is no gauge, add nothing. */
const UNIT_SUFFIXES: Readonly<Record<string, string>> = { s: '_seconds' };

/**
 * The name under which Prometheus keeps an instrument that it gets over OTLP, without the `_bucket`,
 * `_sum` and `_count` of a histogram. Source: the compatibility rules between OpenTelemetry and
 * Prometheus, in their default form with suffixes.
 */
export function prometheusName({ kind, name, options }: Instrument): string {
  const unit = UNIT_SUFFIXES[options.unit] ?? '';
  return `${labelName(name)}${unit}${kind === 'counter' ? '_total' : ''}`;
}

/**
 * The name under which an instrument is scraped from the Prometheus exporter of the JavaScript SDK,
 * which leaves the unit out.
 */
export function scrapedName({ kind, name }: Instrument): string {
  return `${labelName(name)}${kind === 'counter' ? '_total' : ''}`;
}

/** An attribute's name as a label. */
export function labelName(attribute: string): string {
  return attribute.replaceAll('.', '_');
}
