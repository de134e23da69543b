import type { Attributes } from '@opentelemetry/api';
import {
  ATTR_ERROR_TYPE,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
  ERROR_TYPE_VALUE_CLOSED,
  ERROR_TYPE_VALUE_DEPTH_EXCEEDED,
  ERROR_TYPE_VALUE_ID_OVERFLOW,
  ERROR_TYPE_VALUE_INVALID_ARGUMENT,
  ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER,
  ERROR_TYPE_VALUE_REPLY_WITHOUT_WINDOW,
  LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_REVERSE_FALLBACK,
  LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_UPSTREAM_OPENED,
  LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED,
  LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_STALE,
  LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_MISS,
  LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_SUCCESS,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED,
} from '../../semconv/attributes.js';
import {
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DROPPED,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_TOKENS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DISCARDED,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DOWNSTREAM_WAIT_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DRAIN_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_FORWARD_WRITE_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_STAGE0_COMPUTE_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_VERIFY_TIME,
  type Instrument,
} from '../../semconv/instruments.js';
import type { Tally } from '../scheduler/tally.js';

/** What the signals read of a tally; a finished generation gives the same. */
export type Counts = Omit<Tally, 'advance' | 'countError' | 'end' | 'pendingMs' | 'occupancyMs'>;

/** One series of a pulled metric within an attribute set. */
export interface Signal {
  readonly instrument: Instrument;
  /** What tells this series from the others of its instrument. */
  readonly attributes?: Attributes;
  read(counts: Counts): number;
}

/** Series of counters: what a scheduler counted stays in the total after its end. */
export const COUNTERS: readonly Signal[] = [
  { instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED, read: (counts) => counts.opened },
  ...by(
    INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED,
    ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
    [
      LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT,
      LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT,
      LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT,
      LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE,
      LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED,
    ],
    (verdict) => (counts) => counts.completed[verdict],
  ),
  ...by(
    INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DROPPED,
    ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON,
    [
      LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_STALE,
      LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED,
    ],
    (reason) => (counts) => counts.dropped[reason],
  ),
  ...by(
    INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS,
    ATTR_ERROR_TYPE,
    [
      ERROR_TYPE_VALUE_DEPTH_EXCEEDED,
      ERROR_TYPE_VALUE_ID_OVERFLOW,
      ERROR_TYPE_VALUE_REPLY_WITHOUT_WINDOW,
      ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER,
      ERROR_TYPE_VALUE_INVALID_ARGUMENT,
      ERROR_TYPE_VALUE_CLOSED,
    ],
    (code) => (counts) => counts.errors[code],
  ),
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS,
    read: (counts) => counts.proposedTokens,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS,
    read: (counts) => counts.acceptedTokens,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS,
    read: (counts) => counts.recoveryEpochs,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED,
    read: (counts) => counts.staleMarked,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DISCARDED,
    read: (counts) => counts.staleDiscarded,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DRAIN_TIME,
    read: (counts) => counts.staleDrainMs / 1000,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_STAGE0_COMPUTE_TIME,
    read: (counts) => counts.staleStage0ComputeMs / 1000,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_FORWARD_WRITE_TIME,
    read: (counts) => counts.staleForwardWriteMs / 1000,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DOWNSTREAM_WAIT_TIME,
    read: (counts) => counts.staleDownstreamWaitMs / 1000,
  },
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_VERIFY_TIME,
    read: (counts) => counts.staleVerifyElapsedMs / 1000,
  },
  ...by(
    INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS,
    ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME,
    [
      LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_SUCCESS,
      LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_MISS,
    ],
    (outcome) => (counts) =>
      outcome === LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_SUCCESS
        ? counts.horizonRefillSuccesses
        : counts.horizonRefillMisses,
  ),
  {
    instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_TOKENS,
    read: (counts) => counts.horizonRefillTokens,
  },
  // A generation that changed its path counts under both: a count once given is never taken back.
  ...by(
    INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS,
    ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH,
    [
      LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_UPSTREAM_OPENED,
      LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_REVERSE_FALLBACK,
    ],
    (path) => (counts) =>
      Number(
        path === LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_UPSTREAM_OPENED
          ? counts.directReturnUpstreamOpened
          : counts.directReturnReverseFallback,
      ),
  ),
];

/** Series of up-down counters: only live schedulers are in them. */
export const GAUGES: readonly Signal[] = [
  { instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT, read: (counts) => counts.inFlight },
  { instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY, read: (counts) => counts.depth },
  { instrument: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT, read: () => 1 },
];

/** One series of `instrument` for each value of its attribute. */
function by<Value extends string>(
  instrument: Instrument,
  attribute: string,
  values: readonly Value[],
  reader: (value: Value) => Signal['read'],
): Signal[] {
  return values.map((value) => ({
    instrument,
    attributes: { [attribute]: value },
    read: reader(value),
  }));
}
