import * as A from '../../../semconv/attributes.js';
import * as I from '../../../semconv/instruments.js';
import { labelName, prometheusName } from '../prometheus-names.js';
import * as promql from '../promql.js';
import { CHAIN_LABEL } from './resource-labels.js';
import { DEFAULTS, duration, type RuleOptions, windowName } from './rule-options.js';

export interface RecordingRule {
  readonly record: string;
  readonly expr: string;
}

const ERROR_TYPE = labelName(A.ATTR_ERROR_TYPE);
export const STAGE_INDEX = labelName(A.ATTR_LLAMA_STAGE_STAGE_INDEX);

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
  name: `${nameOf(instrument)}${suffix ?? ''}:rate`,
  promql: (scope) => promql.rate(instrument, scope, suffix ? { suffix } : {}),
});
const mean = (instrument: I.HistogramInstrument): Figure => ({
  name: `${nameOf(instrument)}:mean_rate`,
  promql: (scope) => promql.mean(instrument, scope),
});
const figure = (name: string, write: Figure['promql']): Figure => ({
  name: `llama_stage_${name}`,
  promql: write,
});

export const OPENED = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED);
export const COMPLETED = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED);
/** Seconds that schedulers lived, for each second: generations under way, on average. */
export const GENERATIONS = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME);
export const REFILLS = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS);
export const RETURNS = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS);
export const FULL = figure('verify_window_full:ratio_rate', promql.fullFraction);
export const IDLE = figure('verify_window_idle:ratio_rate', promql.idleFraction);
export const STALE = figure('verify_window_stale:ratio_rate', promql.staleFraction);
export const ACCEPTANCE = figure('verify_window_acceptance:ratio_rate', promql.acceptanceRate);
export const REFILL_HITS = figure('verify_window_refill_hits:ratio_rate', promql.refillHitRate);
export const FALLBACK = figure(
  'verify_window_reverse_fallback:ratio_rate',
  promql.reverseFallbackFraction,
);

const WINDOW_FIGURES: readonly Figure[] = [
  OPENED,
  COMPLETED,
  GENERATIONS,
  rate(I.INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS),
  figure('generation_output_tokens:mean_rate', promql.outputRateOfOne),
  figure('verify_window_in_flight:mean_rate', promql.averageInFlight),
  figure('verify_window_parallel:ratio_rate', promql.parallelFraction),
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
    name: `${nameOf(COMPUTE)}:p95_rate`,
    // The quantile of nothing is NaN, which the comparison drops.
    promql: (scope) => `${promql.quantile(0.95, COMPUTE, scope)} >= 0`,
  },
];

/** Processes that tell of a stage or of a coordinator: those of a job that are there. */
export const WORKERS: Figure = {
  name: 'llama_stage_workers:count',
  promql: ({ by }) => {
    const present = [
      `${prometheusName(COMPUTE)}_count`,
      prometheusName(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT),
    ].map((series) => `group by (job, instance) (${series}{job!=""})`);
    return `count by (${by}) (${present.join(' or ')})`;
  },
};

/** Generations that ended, to judge by whether an objective saw enough of them. */
export const ENDED = rate(I.INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT);

/** A share of generations that has to stay below what the objective leaves. */
export interface Objective {
  readonly bad: Figure;
  /** The share that may be bad in the long run. */
  readonly budget: number;
}

export function objectives(options: RuleOptions) {
  const late = (
    name: string,
    instrument: I.HistogramInstrument,
    seconds: number,
    objective: number,
  ): Objective => {
    if (!instrument.options.advice.explicitBucketBoundaries.includes(seconds)) {
      throw new RangeError(`${instrument.name} has no bucket that ends at ${seconds} s`);
    }
    return {
      bad: figure(name, (scope) => promql.shareAbove(instrument, seconds, scope)),
      budget: 1 - objective,
    };
  };
  return {
    failed: {
      bad: figure('generation_failed:ratio_rate', promql.failedFraction),
      budget: 1 - options['completed-objective'],
    },
    firstTokenLate: late(
      'generation_first_token_late:ratio_rate',
      I.INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
      options['first-token-seconds'],
      options['first-token-objective'],
    ),
    tokensLate: late(
      'generation_tokens_late:ratio_rate',
      I.INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
      options['token-seconds'],
      options['token-objective'],
    ),
  } as const satisfies Record<string, Objective>;
}

/** The windows of burn rates, in minutes, as Google's workbook on reliability has them. */
export const BURNS = [
  { severity: 'critical', long: 60, short: 5, rate: 14.4, for: 2 },
  { severity: 'warning', long: 360, short: 30, rate: 6, for: 15 },
] as const;

/** Where a figure of some level is recorded; over five minutes unless said otherwise. */
export function recorded(level: keyof typeof LEVELS, { name }: Figure, minutes = 5): string {
  return `${level}:${name}${/rate$/.test(name) ? windowName(minutes) : ''}`;
}

/** The groups of recording rules, by name. */
export function recordingRules(options: RuleOptions = DEFAULTS): Record<string, RecordingRule[]> {
  const rules = (
    levels: readonly (keyof typeof LEVELS)[],
    figures: readonly Figure[],
    minutes: readonly number[] = [5],
  ) =>
    levels.flatMap((level) =>
      figures.flatMap((figure) =>
        minutes.map((window) => ({
          record: recorded(level, figure, window),
          expr: figure.promql({ range: duration(window, options), by: LEVELS[level] }),
        })),
      ),
    );
  const long = BURNS.map((burn) => burn.long);
  const short = BURNS.map((burn) => burn.short);
  const bad = Object.values(objectives(options)).map((objective) => objective.bad);
  return {
    'llama-stage-windows': [
      ...rules(['instance', 'job'], WINDOW_FIGURES),
      ...rules(['instance_error_type', 'job_error_type'], [ERRORS]),
    ],
    'llama-stage-stages': [
      ...rules(['instance_stage', 'stage'], STAGE_FIGURES),
      ...rules(['job'], [WORKERS]),
    ],
    'llama-stage-objectives': [
      ...rules(
        ['job'],
        bad,
        [...short, ...long].sort((a, b) => a - b),
      ),
      ...rules(['job'], [ENDED], long),
    ],
  };
}
