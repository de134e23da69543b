import { ATTR_ERROR_TYPE, ATTR_LLAMA_STAGE_STAGE_INDEX } from '../../../semconv/attributes.js';
import * as I from '../../../semconv/instruments.js';
import { labelName } from '../prometheus-names.js';
import * as promql from '../promql.js';

/** A series that Prometheus computes once for everyone. */
export interface Recording {
  /** `level:metric:operation`, as Prometheus names recorded series. */
  readonly record: string;
  readonly expr: string;
}

const RANGE = '5m';
const JOB = { range: RANGE, by: 'job' };
const ERROR_TYPE = labelName(ATTR_ERROR_TYPE);
/** Tells the chains of one deployment from those of another; absent where there is but one. */
export const CHAIN = labelName('service.namespace');
export const STAGE_INDEX = labelName(ATTR_LLAMA_STAGE_STAGE_INDEX);

const job = (figure: string, expr: string): Recording => ({
  record: `job:llama_stage_verify_window_${figure}`,
  expr,
});

/** Windows opened per second. */
export const OPENED = job(
  'opened:rate5m',
  promql.rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED, JOB),
);
/** Generations under way, on average: seconds of their lives in each second. */
export const GENERATIONS = job(
  'generations:rate5m',
  promql.rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME, JOB),
);
export const AVERAGE_IN_FLIGHT = job('average_in_flight:rate5m', promql.averageInFlight(JOB));
export const PARALLEL = job('parallel:ratio_rate5m', promql.parallelFraction(JOB));
export const FULL = job('full:ratio_rate5m', promql.fullFraction(JOB));
export const IDLE = job('idle:ratio_rate5m', promql.idleFraction(JOB));
export const STALE = job('stale:ratio_rate5m', promql.staleFraction(JOB));
export const PROPOSED = job(
  'proposed_tokens:rate5m',
  promql.rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS, JOB),
);
export const ACCEPTANCE = job('acceptance:ratio_rate5m', promql.acceptanceRate(JOB));
export const ACCEPTED_LENGTH = job(
  'accepted_length:mean_rate5m',
  promql.mean(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH, JOB),
);
/** Refill attempts per second. */
export const REFILLS = job(
  'horizon_refills:rate5m',
  promql.rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS, JOB),
);
export const REFILL_HITS = job('horizon_refill_hit:ratio_rate5m', promql.refillHitRate(JOB));
export const REVERSE_FALLBACK = job(
  'reverse_fallback:ratio_rate5m',
  promql.reverseFallbackFraction(JOB),
);
/** Refused calls per second, by their reason. */
export const ERRORS: Recording = {
  record: `job_${ERROR_TYPE}:llama_stage_verify_window_errors:rate5m`,
  expr: promql.rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS, {
    range: RANGE,
    by: `job, ${ERROR_TYPE}`,
  }),
};
/** Windows completed per second. */
export const COMPLETED: Recording = {
  record: 'job_instance:llama_stage_verify_window_completed:rate5m',
  expr: promql.rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, {
    range: RANGE,
    by: 'job, instance',
  }),
};
/** Mean seconds of compute for a window. */
export const COMPUTE: Recording = {
  record: 'chain_stage:llama_stage_stage_compute_duration_seconds:mean_rate5m',
  expr: promql.mean(I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION, {
    range: RANGE,
    by: `${CHAIN}, ${STAGE_INDEX}`,
  }),
};

export const RECORDINGS: readonly Recording[] = [
  OPENED,
  GENERATIONS,
  AVERAGE_IN_FLIGHT,
  PARALLEL,
  FULL,
  IDLE,
  STALE,
  PROPOSED,
  ACCEPTANCE,
  ACCEPTED_LENGTH,
  REFILLS,
  REFILL_HITS,
  REVERSE_FALLBACK,
  ERRORS,
  COMPLETED,
  COMPUTE,
];
