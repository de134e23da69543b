import * as A from '../../../semconv/attributes.js';
import * as I from '../../../semconv/instruments.js';
import { labelName, prometheusName } from '../prometheus-names.js';
import {
  ACCEPTANCE,
  BURNS,
  COMPLETED,
  COMPUTE_MEAN,
  COMPUTED,
  ENDED,
  ERRORS,
  FALLBACK,
  type Figure,
  FULL,
  GENERATIONS,
  IDLE,
  type Objective,
  OPENED,
  objectives,
  REFILL_HITS,
  REFILLS,
  RETURNS,
  recorded,
  STAGE_INDEX,
  STALE,
  WORKERS,
} from './recording-rules.js';
import { CHAIN_LABEL } from './resource-labels.js';
import { duration, type RuleOptions } from './rule-options.js';

export interface Alert {
  readonly alert: string;
  readonly expr: string;
  /** Minutes. */
  readonly for: number;
  /** `critical` wakes somebody, `warning` waits for working hours, `info` for a quiet one. */
  readonly severity: 'critical' | 'warning' | 'info';
  readonly summary: string;
  readonly description: string;
}

const inFlight = prometheusName(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT);
const oldestAge = prometheusName(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE);
const comparisons = prometheusName(I.INSTRUMENT_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS);
const problems = prometheusName(I.INSTRUMENT_LLAMA_STAGE_TELEMETRY_PROBLEMS);
const problem = labelName(A.ATTR_LLAMA_STAGE_TELEMETRY_PROBLEM);
const different = `${labelName(A.ATTR_LLAMA_STAGE_GENERATION_CONTROL_RESULT)}="${A.LLAMA_STAGE_GENERATION_CONTROL_RESULT_VALUE_DIFFERENT}"`;
const errorType = labelName(A.ATTR_ERROR_TYPE);
const depthExceeded = `${errorType}="${A.ERROR_TYPE_VALUE_DEPTH_EXCEEDED}"`;
const protocolError = `${errorType}=~"${A.ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER}|${A.ERROR_TYPE_VALUE_REPLY_WITHOUT_WINDOW}"`;

/** A number as people write it; `humanize` makes 100m of 0.1. */
const PLAIN = 'printf "%.3g"';

/** A count that a rate was made of and has no fraction. */
const COUNT = 'printf "%.0f"';

/** Enough windows to judge shares of them by: 300 in the five minutes. */
const enoughWindows = `${recorded('job', OPENED)} >= 1`;
/** At least one generation under way for a minute of the five. */
const generationsRun = `${recorded('job', GENERATIONS)} >= 0.2`;

const refused = recorded('job_error_type', ERRORS);

const stageMean = recorded('stage', COMPUTE_MEAN);
const sumOfOthers = `(sum by (${CHAIN_LABEL}) (${stageMean}) - on (${CHAIN_LABEL}) group_right () ${stageMean})`;
const countOfOthers = `(count by (${CHAIN_LABEL}) (${stageMean}) - 1)`;
/** For each stage the mean over the other stages of its chain; NaN for a stage alone. */
const meanOfOthers = `(${sumOfOthers} / on (${CHAIN_LABEL}) group_left () ${countOfOthers})`;

/** All alerts. Each is about a whole job or stage, and names the instance that is worst. */
export function alerts(options: RuleOptions): readonly Alert[] {
  const stalled = stalledFor(duration(5, options));
  const { failed, firstTokenLate, tokensLate } = objectives(options);
  return [
    {
      alert: 'LlamaStagePipelineStalled',
      expr: `count by (job) (${stalled()})`,
      for: 1,
      severity: 'critical',
      summary: 'Generations of {{ $labels.job }} stand still',
      description: `Instances of {{ $labels.job }} with verify windows in flight for five minutes, and no answer to any: {{ $value }}. ${nameFirst(`topk(1, ${stalled('{job=%q}')})`, ['job'], 'humanize', ' windows in flight')}`,
    },
    {
      alert: 'LlamaStagePipelineIdle',
      expr: `${recorded('job', IDLE)} > 0.4 and ${generationsRun}`,
      for: 10,
      severity: 'warning',
      summary: 'The pipeline of {{ $labels.job }} is idle while generations run',
      description: `For {{ $value | humanizePercentage }} of their time the generations of {{ $labels.job }} have nothing in flight. ${worst('topk', IDLE, GENERATIONS, 0.2)}`,
    },
    {
      alert: 'LlamaStageStaleWork',
      expr: `${recorded('job', STALE)} > 0.7 and ${enoughWindows}`,
      for: 15,
      severity: 'warning',
      summary: 'Most of what {{ $labels.job }} computes is thrown away',
      description: `{{ $value | humanizePercentage }} of the verify windows of {{ $labels.job }} were stale before their answer came. ${worst('topk', STALE, OPENED, 0.1)}`,
    },
    {
      alert: 'LlamaStageAcceptanceCollapsed',
      expr: `${recorded('job', ACCEPTANCE)} < 0.25 and ${enoughWindows}`,
      for: 15,
      severity: 'warning',
      summary: 'The guesses of {{ $labels.job }} are hardly ever right',
      description: `The target accepts {{ $value | humanizePercentage }} of the tokens that {{ $labels.job }} proposes. ${worst('bottomk', ACCEPTANCE, OPENED, 0.1)}`,
    },
    {
      alert: 'LlamaStageRefillDry',
      expr: `${recorded('job', REFILL_HITS)} < 0.2 and ${recorded('job', REFILLS)} >= 0.1 and ${recorded('job', FULL)} < 0.5`,
      for: 30,
      severity: 'info',
      summary: '{{ $labels.job }} runs out of guesses',
      description: `{{ $value | humanizePercentage }} of the horizon refills of {{ $labels.job }} find a continuation, and its pipeline is not full. ${worst('bottomk', REFILL_HITS, REFILLS, 0.01)}`,
    },
    {
      alert: 'LlamaStageDepthExceeded',
      expr: `sum by (job) (${refused}{${depthExceeded}}) / (${recorded('job', OPENED)} + sum by (job) (${refused}{${depthExceeded}})) > 0.01`,
      for: 10,
      severity: 'warning',
      summary: '{{ $labels.job }} opens windows beyond its depth',
      description: `{{ $value | humanizePercentage }} of the windows that {{ $labels.job }} wants to open are refused, as its depth is in flight already. ${mostRefused(depthExceeded)}`,
    },
    {
      alert: 'LlamaStageProtocolErrors',
      expr: `sum by (job) (${refused}{${protocolError}}) > 0`,
      for: 5,
      severity: 'critical',
      summary: '{{ $labels.job }} gets answers to the wrong windows',
      description: `{{ $labels.job }} refuses {{ $value | ${PLAIN} }} answers a second, which are out of order or belong to no window. ${mostRefused(protocolError)}`,
    },
    {
      alert: 'LlamaStageStageSlow',
      expr: `max by (${CHAIN_LABEL}, ${STAGE_INDEX}) (${recorded('instance_stage', COMPUTE_MEAN)} and ${recorded('instance_stage', COMPUTED)} >= 1) / ${meanOfOthers} > 2`,
      for: 15,
      severity: 'warning',
      summary: `Stage {{ $labels.${STAGE_INDEX} }} holds up the chain`,
      description: `Stage {{ $labels.${STAGE_INDEX} }} computes {{ $value | ${PLAIN} }} times as long for a window as the other stages on average. ${nameFirst(`topk(1, ${recorded('instance_stage', COMPUTE_MEAN)}{${CHAIN_LABEL}=%q, ${STAGE_INDEX}=%q} and ${recorded('instance_stage', COMPUTED)} >= 1)`, [CHAIN_LABEL, STAGE_INDEX], 'humanizeDuration')}`,
    },
    {
      alert: 'LlamaStageReverseFallback',
      expr: `${recorded('job', FALLBACK)} > 0.05 and ${recorded('job', RETURNS)} >= 0.05`,
      for: 15,
      severity: 'info',
      summary: 'Predictions come back to {{ $labels.job }} by the fallback',
      description: `For {{ $value | humanizePercentage }} of the generations of {{ $labels.job }} the last stage found no sink that the upstream had opened. ${worst('topk', FALLBACK, RETURNS, 0.005)}`,
    },
    {
      alert: 'LlamaStageWindowStuck',
      expr: `max by (job) (${oldestAge}{job!=""}) > ${options['minute-seconds']}`,
      for: 1,
      severity: 'critical',
      summary: 'A generation of {{ $labels.job }} stands still',
      description: `A verify window of {{ $labels.job }} has been in flight for {{ $value | humanizeDuration }}, and its generation waits for it. ${nameFirst(`topk(1, max by (job, instance) (${oldestAge}{job=%q}))`, ['job'], 'humanizeDuration')}`,
    },
    {
      alert: 'LlamaStageOutputDifferent',
      expr: `sum by (job) (${risen(comparisons, different, options)}) > 0`,
      for: 0,
      severity: 'critical',
      summary: '{{ $labels.job }} gives other output than its control',
      description: `Outputs of {{ $labels.job }} that differ from those of the serial control, in the last hour: {{ $value | ${COUNT} }}. ${nameFirst(`topk(1, sum by (job, instance) (${comparisons}{job=%q, ${different}}))`, ['job'], COUNT, ' since it started')}`,
    },
    {
      alert: 'LlamaStageTelemetryProblems',
      expr: `sum by (job, ${problem}) (${risen(problems, 'job!=""', options)}) > 0`,
      for: 5,
      severity: 'warning',
      summary: 'The telemetry of {{ $labels.job }} is incomplete',
      description: `Troubles of the kind {{ $labels.${problem} }} that the telemetry of {{ $labels.job }} had in the last hour: {{ $value | ${COUNT} }}. ${nameFirst(`topk(1, sum by (job, instance) (${problems}{job=%q, ${problem}=%q}))`, ['job', problem], COUNT, ' since it started')}`,
    },
    {
      alert: 'LlamaStageWorkerVanished',
      expr: `(${before(options)}) - (${recorded('job', WORKERS)} or 0 * (${before(options)})) > 0`,
      for: 10,
      severity: 'warning',
      summary: '{{ $labels.job }} has fewer workers than an hour ago',
      description:
        'Workers of {{ $labels.job }} that reported an hour ago, and do not now: {{ $value }}.',
    },
    ...burning(failed, {
      alert: 'LlamaStageGenerationsFail',
      summary: 'Generations of {{ $labels.job }} fail',
      what: 'of the generations of {{ $labels.job }} failed or were lost',
    }),
    ...burning(firstTokenLate, {
      alert: 'LlamaStageFirstTokenLate',
      summary: 'First tokens of {{ $labels.job }} come late',
      what: `of the generations of {{ $labels.job }} waited for more than ${options['first-token-seconds']} s for their first token`,
    }),
    ...burning(tokensLate, {
      alert: 'LlamaStageTokensLate',
      summary: 'Tokens of {{ $labels.job }} come late',
      what: `of the generations of {{ $labels.job }} took more than ${options['token-seconds']} s for each token`,
    }),
  ];
}

/** Windows in flight of the instances that hold some and get no answer. */
function stalledFor(range: string): (selector?: string) => string {
  const held = (selector: string) =>
    `sum by (job, instance) (min_over_time(${inFlight}${selector}[${range}]))`;
  return (selector = '') => `${held(selector)} > 0 and ${recorded('instance', COMPLETED)} == 0`;
}

/**
 * By how much a counter rose in the last hour. One whose series is new there rose by all that it
 * has: its first sample may be 1 already, which is no increase. Where a whole day has no sample the
 * series is new, and not after a gap.
 */
function risen(counter: string, match: string, options: RuleOptions): string {
  const series = `${counter}{${match}}`;
  const hour = duration(60, options);
  const known = `present_over_time(${series}[${duration(1440, options)}] offset ${hour})`;
  return `(${series} > 0 unless ${known}) or increase(${series}[${hour}])`;
}

function before(options: RuleOptions): string {
  return `${recorded('job', WORKERS)} offset ${duration(60, options)}`;
}

/**
 * An objective's two alerts: the budget of a month burns so fast that it is gone in two days, or in
 * five. The short window lets an alert end soon after its cause.
 */
function burning(
  { bad, budget }: Objective,
  { alert, summary, what }: { readonly alert: string; summary: string; what: string },
): Alert[] {
  return BURNS.map(({ severity, long, short, rate, for: minutes }) => {
    const limit = Number((rate * budget).toPrecision(3));
    const over = [long, short].map((window) => `${recorded('job', bad, window)} > ${limit}`);
    return {
      alert,
      expr: `${over.join(' and ')} and ${recorded('job', ENDED, long)} >= 0.01`,
      for: minutes,
      severity,
      summary,
      description: `{{ $value | humanizePercentage }} ${what}; the objective leaves ${Number((100 * budget).toPrecision(3))} %.`,
    };
  });
}

/** Names the worst of the job's instances that do enough to be judged. */
function worst(pick: 'topk' | 'bottomk', figure: Figure, volume: Figure, enough: number): string {
  const series = `${recorded('instance', figure)}{job=%q}`;
  const query = `${series} and ${recorded('instance', volume)} >= ${enough}`;
  return nameFirst(`${pick}(1, ${query})`, ['job'], 'humanizePercentage');
}

/** Names the instance of the job that is refused most. */
function mostRefused(match: string): string {
  const query = `topk(1, ${recorded('instance_error_type', ERRORS)}{job=%q, ${match}})`;
  return nameFirst(query, ['job'], PLAIN, ' a second');
}

/** Names the first instance that a query gives, in the language of annotations. */
function nameFirst(query: string, labels: readonly string[], format: string, unit = ''): string {
  const values = labels.map((label) => `$labels.${label}`).join(' ');
  const first = `instance {{ . | first | label "instance" }} of {{ . | first | label "job" }}`;
  return `{{ with printf ${JSON.stringify(query)} ${values} | query }}Worst: ${first}, ${`{{ . | first | value | ${format} }}`}${unit}.{{ end }}`;
}
