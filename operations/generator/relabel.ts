import * as instruments from '../../semconv/instruments.js';
import { prometheusName, scrapedName } from './prometheus-names.js';

/** One of Prometheus' `metric_relabel_configs`. */
export interface Relabel {
  /** Their values are joined with semicolons. */
  readonly source_labels: readonly string[];
  /** Matches the whole of it, not a part. */
  readonly regex: string;
  readonly target_label: string;
  readonly replacement: string;
}

const ALL = Object.values(instruments);
const RENAMED = ALL.filter((instrument) => scrapedName(instrument) !== prometheusName(instrument));

/**
 * Gives what is scraped from the Prometheus exporter of the JavaScript SDK the names and buckets
 * that the same series have over OTLP. What has its unit already, and what belongs to others, is
 * not matched.
 */
export function relabelScraped(): Relabel[] {
  return [
    addUnit(ofKind(RENAMED, 'counter'), '_total'),
    addUnit(ofKind(RENAMED, 'histogram'), '_bucket|_sum|_count'),
    addUnit(ofKind(RENAMED, 'gauge'), ''),
    wholeBounds(ofKind(ALL, 'histogram')),
  ];
}

/** All that is renamed is in seconds. */
function addUnit(renamed: readonly instruments.Instrument[], suffixes: string): Relabel {
  const stems = renamed.map((instrument) => scrapedName(instrument).replace(/_total$/, ''));
  return {
    source_labels: ['__name__'],
    regex: `(${stems.join('|')})(${suffixes})`,
    target_label: '__name__',
    // In braces: `$1_seconds` would be a group of that name.
    // biome-ignore lint/suspicious/noTemplateCurlyInString: Prometheus expands it.
    replacement: '${1}_seconds${2}',
  };
}

/** A scrape makes `1.0` of a bucket's whole bound, OTLP makes `1`: added up, they were two buckets. */
function wholeBounds(histograms: readonly instruments.Instrument[]): Relabel {
  return {
    source_labels: ['__name__', 'le'],
    regex: `(?:${histograms.map(prometheusName).join('|')})_bucket;([0-9]+)\\.0`,
    target_label: 'le',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: Prometheus expands it.
    replacement: '${1}',
  };
}

function ofKind(all: readonly instruments.Instrument[], kind: instruments.Instrument['kind']) {
  return all.filter((instrument) => instrument.kind === kind);
}
