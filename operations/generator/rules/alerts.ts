import {
  ATTR_ERROR_TYPE,
  ERROR_TYPE_VALUE_DEPTH_EXCEEDED,
  ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER,
  ERROR_TYPE_VALUE_REPLY_WITHOUT_WINDOW,
} from '../../../semconv/attributes.js';
import { INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT } from '../../../semconv/instruments.js';
import { labelName, prometheusName } from '../prometheus-names.js';
import * as R from './recordings.js';

/**
 * Something that deserves a person. The thresholds are argued for in the runbook, in the section
 * of the alert's name.
 */
export interface Alert {
  readonly alert: string;
  readonly expr: string;
  /** How long it has to last. */
  readonly for: string;
  /** `critical` cannot wait for the next day, `warning` can. */
  readonly severity: 'critical' | 'warning';
  readonly summary: string;
}

const IN_FLIGHT = prometheusName(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT);
const ERROR_TYPE = labelName(ATTR_ERROR_TYPE);

/** Enough windows to judge a share by: sixty in the five minutes of a rate. */
const ENOUGH_WINDOWS = `${R.OPENED.record} > 0.2`;

export const ALERTS: readonly Alert[] = [
  {
    alert: 'LlamaStagePipelineStalled',
    expr: `count by (job) (sum by (job, instance) (min_over_time(${IN_FLIGHT}[5m])) > 0 and ${R.COMPLETED.record} == 0)`,
    for: '2m',
    severity: 'critical',
    summary:
      'Workers of {{ $labels.job }} have windows in flight, and no reply to any for five minutes: {{ $value }}.',
  },
  {
    alert: 'LlamaStagePipelineIdle',
    expr: `${R.IDLE.record} > 0.5 and ${R.GENERATIONS.record} > 0.2`,
    for: '10m',
    severity: 'warning',
    summary:
      'Generations of {{ $labels.job }} have no window in flight {{ $value | humanizePercentage }} of the time.',
  },
  {
    alert: 'LlamaStageStaleWork',
    expr: `${R.STALE.record} > 0.7 and ${ENOUGH_WINDOWS}`,
    for: '15m',
    severity: 'warning',
    summary: '{{ $value | humanizePercentage }} of the windows of {{ $labels.job }} are stale.',
  },
  {
    alert: 'LlamaStageAcceptanceCollapsed',
    expr: `${R.ACCEPTANCE.record} < 0.5 * avg_over_time(${R.ACCEPTANCE.record}[1d]) and ${R.PROPOSED.record} > 1`,
    for: '15m',
    severity: 'warning',
    summary:
      'Only {{ $value | humanizePercentage }} of the candidate tokens of {{ $labels.job }} are accepted, less than half of the last day.',
  },
  {
    alert: 'LlamaStageRefillDry',
    expr: `${R.REFILL_HITS.record} < 0.1 and ${R.REFILLS.record} > 0.1`,
    for: '15m',
    severity: 'warning',
    summary:
      'Only {{ $value | humanizePercentage }} of the horizon refills of {{ $labels.job }} find tokens.',
  },
  {
    alert: 'LlamaStageDepthLimitRefusing',
    expr: `${R.ERRORS.record}{${ERROR_TYPE}="${ERROR_TYPE_VALUE_DEPTH_EXCEEDED}"} > 0`,
    for: '5m',
    severity: 'warning',
    summary:
      '{{ $labels.job }} opens windows past the depth, and is refused {{ printf "%.2g" $value }} times a second.',
  },
  {
    alert: 'LlamaStageRepliesOutOfOrder',
    expr: `sum by (job) (${R.ERRORS.record}{${ERROR_TYPE}=~"${ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER}|${ERROR_TYPE_VALUE_REPLY_WITHOUT_WINDOW}"}) > 0`,
    for: '2m',
    severity: 'critical',
    summary:
      '{{ $labels.job }} gets replies that belong to no window, {{ printf "%.2g" $value }} a second.',
  },
  {
    alert: 'LlamaStageSlowStage',
    expr: `${R.COMPUTE.record} > on (${R.CHAIN}) group_left () 1.5 * quantile by (${R.CHAIN}) (0.5, ${R.COMPUTE.record}) and on (${R.CHAIN}) count by (${R.CHAIN}) (${R.COMPUTE.record}) > 2`,
    for: '15m',
    severity: 'warning',
    summary: `Stage {{ $labels.${R.STAGE_INDEX} }}{{ with $labels.${R.CHAIN} }} of {{ . }}{{ end }} computes {{ $value | humanizeDuration }} for a window, half as long again as the others.`,
  },
  {
    alert: 'LlamaStageReverseFallback',
    expr: `${R.REVERSE_FALLBACK.record} > 0.05`,
    for: '15m',
    severity: 'warning',
    summary:
      '{{ $value | humanizePercentage }} of the generations of {{ $labels.job }} get their predictions over the reverse fallback.',
  },
];
