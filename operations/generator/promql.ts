import * as A from '../../semconv/attributes.js';
import * as I from '../../semconv/instruments.js';
import { labelName, prometheusName } from './prometheus-names.js';

/** Over which time, by which labels, and of which series a query is. */
export interface Scope {
  /** The range of `rate`: `5m`, or `$__rate_interval`. */
  readonly range: string;
  /** Labels that are kept, separated by commas; none for one figure over everything. */
  readonly by?: string;
  /** Matchers without their braces: `job=~"$job"`. */
  readonly match?: string;
}

/** The increase per second of a counter, or of a histogram's `_sum` or `_count`. */
export function rate(
  instrument: I.Instrument,
  scope: Scope,
  options: { readonly suffix?: '_sum' | '_count' | '_bucket'; readonly match?: string } = {},
): string {
  const { match } = options.match ? within(scope, options.match) : scope;
  const selector = match ? `{${match}}` : '';
  const series = `${prometheusName(instrument)}${options.suffix ?? ''}${selector}`;
  return `sum${scope.by ? ` by (${scope.by})` : ''} (rate(${series}[${scope.range}]))`;
}

/** Of these series only those that match this too. */
export function within(scope: Scope, match: string): Scope {
  return { ...scope, match: [scope.match, match].filter(Boolean).join(', ') };
}

/** A quantile of a histogram's values, from 0 to 1. */
export function quantile(q: number, instrument: I.HistogramInstrument, scope: Scope): string {
  const by = [scope.by, 'le'].filter(Boolean).join(', ');
  return `histogram_quantile(${q}, ${rate(instrument, { ...scope, by }, { suffix: '_bucket' })})`;
}

/** The mean of a histogram's values; nothing where there was none. */
export function mean(instrument: I.HistogramInstrument, scope: Scope): string {
  const sum = rate(instrument, scope, { suffix: '_sum' });
  return share(sum, rate(instrument, scope, { suffix: '_count' }));
}

/** A part as a share of the whole; nothing where there is no whole. */
export function share(part: string, whole: string): string {
  return `${part} / (${whole} > 0)`;
}

/**
 * The part of a counter that has this value of an attribute, as a share of all of it: 0, and not
 * nothing, where the value never came up and so has no series.
 */
function shareOf(instrument: I.Instrument, attribute: string, value: string, scope: Scope): string {
  const part = rate(instrument, scope, { match: `${labelName(attribute)}="${value}"` });
  const whole = rate(instrument, scope);
  return share(`(${part} or 0 * ${whole})`, whole);
}

const lifetime = (scope: Scope) =>
  rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME, scope);

/** Windows in flight of a generation, on average over time: the windows' time in the generations'. */
export function averageInFlight(scope: Scope): string {
  return share(rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME, scope), lifetime(scope));
}

/** Tokens per second that a generation commits while its scheduler lives. */
export function outputRateOfOne(scope: Scope): string {
  return share(rate(I.INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS, scope), lifetime(scope));
}

/**
 * Share of a histogram's values that are above one of its boundaries. The label of a whole boundary
 * has a decimal where a scrape is not relabelled.
 */
export function shareAbove(
  instrument: I.HistogramInstrument,
  boundary: number,
  scope: Scope,
): string {
  const le = Number.isInteger(boundary) ? `le=~"${boundary}(\\\\.0)?"` : `le="${boundary}"`;
  const rest = rate(instrument, scope, { suffix: '_bucket', match: le });
  return `1 - ${share(rest, rate(instrument, scope, { suffix: '_count' }))}`;
}

/** Generations that failed or were lost, as a share of those that were not called off. */
export function failedFraction(scope: Scope): string {
  const outcome = labelName(A.ATTR_LLAMA_STAGE_GENERATION_OUTCOME);
  const ended = (match: string) =>
    rate(I.INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT, scope, { match: `${outcome}${match}` });
  const failed = [
    A.LLAMA_STAGE_GENERATION_OUTCOME_VALUE_FAILED,
    A.LLAMA_STAGE_GENERATION_OUTCOME_VALUE_ABANDONED,
  ].join('|');
  return share(
    ended(`=~"${failed}"`),
    ended(`!="${A.LLAMA_STAGE_GENERATION_OUTCOME_VALUE_CANCELLED}"`),
  );
}

/** Share of the generations' time with two or more windows in flight. */
export function parallelFraction(scope: Scope): string {
  return share(rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME, scope), lifetime(scope));
}

/** Share of the generations' time with `depth` windows in flight. */
export function fullFraction(scope: Scope): string {
  return share(rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME, scope), lifetime(scope));
}

/** Share of the generations' time with no window in flight. */
export function idleFraction(scope: Scope): string {
  const time = I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME;
  return shareOf(time, A.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL, '0', scope);
}

/** Windows that were stale, as a share of those opened. */
export function staleFraction(scope: Scope): string {
  return share(
    rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DISCARDED, scope),
    rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED, scope),
  );
}

/** Accepted candidate tokens, as a share of those proposed. */
export function acceptanceRate(scope: Scope): string {
  return share(
    rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS, scope),
    rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS, scope),
  );
}

/** Horizon refills that found tokens, as a share of the attempts. */
export function refillHitRate(scope: Scope): string {
  return shareOf(
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS,
    A.ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME,
    A.LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_SUCCESS,
    scope,
  );
}

/** Generations whose predictions came back over the reverse fallback, as a share of all. */
export function reverseFallbackFraction(scope: Scope): string {
  return shareOf(
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS,
    A.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH,
    A.LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH_VALUE_REVERSE_FALLBACK,
    scope,
  );
}
