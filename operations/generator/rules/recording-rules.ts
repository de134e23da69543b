import { ATTR_ERROR_TYPE, ATTR_LLAMA_STAGE_STAGE_INDEX } from '../../../semconv/attributes.js';
import * as I from '../../../semconv/instruments.js';
import { labelName, prometheusName } from '../prometheus-names.js';
import * as promql from '../promql.js';
import { CHAIN_LABEL } from './resource-labels.js';

export interface RecordingRule {
  readonly record: string;
  readonly expr: string;
}

const ERROR_TYPE = labelName(ATTR_ERROR_TYPE);
export const STAGE_INDEX = labelName(ATTR_LLAMA_STAGE_STAGE_INDEX);

/** What a recorded series is about, and the labels that it keeps. */
const LEVELS = {
  instance: 'job, instance',
  job: 'job',
  instance_error_type: `job, instance, ${ERROR_TYPE}`,
  job_error_type: `job, ${ERROR_TYPE}`,
  instance_stage: `${CHAIN_LABEL}, job, instance, ${STAGE_INDEX}`,
  stage: `${CHAIN_LABEL}, ${STAGE_INDEX}`,
} as const;

/** A figure that is recorded, named `metric:operation`. */
export interface Figure {
  readonly name: string;
  promql(scope: promql.Scope): string;
}

/** A rate is no total. */
const nameOf = (instrument: I.Instrument) => prometheusName(instrument).replace(/_total$/, '');
const rate = (instrument: I.Instrument, suffix?: '_count'): Figure => ({
  name: `${nameOf(instrument)}${suffix ?? ''}:rate5m`,
  promql: (scope) => promql.rate(instrument, scope, suffix ? { suffix } : {}),
});
const mean = (instrument: I.HistogramInstrument): Figure => ({
  name: `${nameOf(instrument)}:mean_rate5m`,
  promql: (scope) => promql.mean(instrument, scope),
});
const figure = (name: string, write: Figure['promql']): Figure => ({
  name: `llama_stage_verify_window_${name}`,
  promql: write,
});

export const OPENED = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED);
export const COMPLETED = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED);
/** Seconds that schedulers lived, for each second: generations under way, on average. */
export const GENERATIONS = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME);
export const REFILLS = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS);
export const RETURNS = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS);
export const FULL = figure('full:ratio_rate5m', promql.fullFraction);
export const IDLE = figure('idle:ratio_rate5m', promql.idleFraction);
export const STALE = figure('stale:ratio_rate5m', promql.staleFraction);
export const ACCEPTANCE = figure('acceptance:ratio_rate5m', promql.acceptanceRate);
export const REFILL_HITS = figure('refill_hits:ratio_rate5m', promql.refillHitRate);
export const FALLBACK = figure('reverse_fallback:ratio_rate5m', promql.reverseFallbackFraction);

const WINDOW_FIGURES: readonly Figure[] = [
  OPENED,
  COMPLETED,
  GENERATIONS,
  figure('in_flight:mean_rate5m', promql.averageInFlight),
  figure('parallel:ratio_rate5m', promql.parallelFraction),
  FULL,
  IDLE,
  STALE,
  ACCEPTANCE,
  mean(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH),
  REFILLS,
  REFILL_HITS,
  RETURNS,
  FALLBACK,
];

export const ERRORS = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS);

const COMPUTE = I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION;
export const COMPUTED = rate(COMPUTE, '_count');
export const COMPUTE_MEAN = mean(COMPUTE);

const STAGE_FIGURES: readonly Figure[] = [
  COMPUTED,
  COMPUTE_MEAN,
  {
    name: `${nameOf(COMPUTE)}:p95_rate5m`,
    // The quantile of nothing is NaN, which the comparison drops.
    promql: (scope) => `${promql.quantile(0.95, COMPUTE, scope)} >= 0`,
  },
];

/** Where a figure of some level is recorded. */
export function recorded(level: keyof typeof LEVELS, { name }: Figure): string {
  return `${level}:${name}`;
}

/** The groups of recording rules, by name; the range is that of their rates. */
export function recordingRules(range = '5m'): Record<string, RecordingRule[]> {
  const rules = (levels: readonly (keyof typeof LEVELS)[], figures: readonly Figure[]) =>
    levels.flatMap((level) =>
      figures.map((figure) => ({
        record: recorded(level, figure),
        expr: figure.promql({ range, by: LEVELS[level] }),
      })),
    );
  return {
    'llama-stage-windows': [
      ...rules(['instance', 'job'], WINDOW_FIGURES),
      ...rules(['instance_error_type', 'job_error_type'], [ERRORS]),
    ],
    'llama-stage-stages': rules(['instance_stage', 'stage'], STAGE_FIGURES),
  };
}
