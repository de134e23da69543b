import {
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE,
} from '../../../semconv/attributes.js';
import * as I from '../../../semconv/instruments.js';
import { labelName, prometheusName } from '../prometheus-names.js';
import { mean, rate, type Scope } from '../promql.js';
import { STAGE, STAGES, WINDOWS } from './variables.js';

const VERDICT = labelName(ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT);
const LEVEL = labelName(ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL);

/** One process, and where it stands in the chain. */
const STAGE_WORKER = `${STAGE}, job, instance`;

/** What an up-down counter stands at, over all workers. */
export function current(instrument: I.Instrument, { match }: Scope): string {
  return `sum(${prometheusName(instrument)}{${match}})`;
}

/** A part as a share of a whole of which there may be nothing. */
export function shareOf(part: string, whole: string): string {
  return `${part} / (${whole} > 0)`;
}

/** Each value of a label as a share of all of them. */
export function sharesBy(label: string, counter: I.Instrument, scope: Scope): string {
  return `${rate(counter, { ...scope, by: label })} / on () group_left () (${rate(counter, scope)} > 0)`;
}

/** Depth of a generation, on average over those under way. */
export function depth(scope: Scope): string {
  return shareOf(
    current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY, scope),
    current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT, scope),
  );
}

/** Generations under way, on average over the interval. */
export function generationsUnderWay(scope: Scope): string {
  return rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME, scope);
}

/** Output tokens per second while a generation decodes, on average over finished ones. */
export function outputRateOfOne(scope: Scope): string {
  return `1 / (${mean(I.INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN, scope)} > 0)`;
}

/**
 * Tokens committed per second, at least: the accepted ones, and the target's own in each reply that
 * did not accept all. After a full accept the target's token may be the next window's first
 * candidate, which is counted there.
 */
export function committedAtLeast(scope: Scope): string {
  const counted = [
    LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT,
    LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE,
  ];
  return committed(`${VERDICT}!~"${counted.join('|')}"`, scope);
}

/** Tokens committed per second, at most: the target's own token in every reply that counted. */
export function committedAtMost(scope: Scope): string {
  return committed(`${VERDICT}!="${LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE}"`, scope);
}

function committed(match: string, scope: Scope): string {
  const accepted = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS, scope);
  return `${accepted} + ${rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, scope, { match })}`;
}

/** Share of the verified windows of which at least so many candidates were accepted. */
export function acceptedAtLeast(count: number, scope: Scope): string {
  const length = I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH;
  // The boundary is a whole number; a scrape writes it with a decimal, OTLP without.
  const fewer = rate(length, scope, { suffix: '_bucket', match: `le=~"${count - 1}(\\\\.0)?"` });
  return `1 - ${shareOf(fewer, rate(length, scope, { suffix: '_count' }))}`;
}

/** Time that stale windows took in one part of the work, as a share of what all took in it. */
export function staleShare(part: I.Instrument, all: I.HistogramInstrument, match = ''): string {
  return shareOf(rate(part, WINDOWS), rate(all, WINDOWS, { suffix: '_sum', match }));
}

export const STAGE_0 = `${STAGE}="0"`;
const LATER_STAGES = `${STAGE}!="0"`;

/**
 * Share of its time that a stage computes, on average over the workers of the stage. Above 1 they
 * compute several windows at once.
 */
export function busyShare(scope: Scope): string {
  return `avg by (${STAGE}) (${computing({ ...scope, by: STAGE_WORKER })})`;
}

/** Stages of one chain that compute at the same time, on average. */
export function stagesComputing(scope: Scope): string {
  return `sum(${busyShare(scope)})`;
}

function computing(scope: Scope): string {
  return rate(I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION, scope, { suffix: '_sum' });
}

/** Processes of each stage that reported within the interval. */
export function workers({ match, range }: Scope): string {
  const windows = prometheusName(I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION);
  return `count by (${STAGE}) (group by (${STAGE_WORKER}) (present_over_time(${windows}_count{${match}}[${range}])))`;
}

/** Windows per second that each stage computed. */
export function windowRate(scope: Scope): string {
  return rate(
    I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
    { ...scope, by: STAGE },
    { suffix: '_count' },
  );
}

/** Mean compute of one window by each stage. */
export function meanCompute(scope: Scope): string {
  return mean(I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION, { ...scope, by: STAGE });
}

/** Windows per second that the slowest stage could compute if it never waited. */
export function slowestStageLimit(scope: Scope): string {
  return `min(${workers(scope)} / (${meanCompute(scope)} > 0))`;
}

/** The slowest single processes, by the mean compute of a window. */
export function slowestWorkers(count: number, scope: Scope): string {
  const compute = I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION;
  return `topk(${count}, ${mean(compute, { ...scope, by: STAGE_WORKER })})`;
}

/** Seconds that a window computes on its way, over all stages. */
export function computePerWindow(): string {
  return `sum(${meanCompute(WINDOWS)})`;
}

/** Seconds that the writes of a window take on its way, over all stages. */
export function writesPerWindow(): string {
  const write = I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION;
  return `sum(${mean(write, { ...WINDOWS, by: STAGE })})`;
}

/**
 * Seconds of a window's way that are neither compute nor a write: links, and queues before stages.
 * It is what stage 0 waited, without what the stages after it did meanwhile.
 */
export function linksAndQueuesPerWindow(): string {
  const later = { ...WINDOWS, match: `${WINDOWS.match}, ${LATER_STAGES}`, by: STAGE };
  const first = { ...WINDOWS, match: `${WINDOWS.match}, ${STAGE_0}` };
  const wait = mean(I.INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION, first);
  const compute = mean(I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION, later);
  const write = mean(I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION, later);
  // In a chain of two nobody after stage 0 writes.
  return `clamp_min(${wait} - sum(${compute}) - (sum(${write}) or vector(0)), 0)`;
}

/**
 * Share of the time that stage 0 waited for windows in which its generation had another one on the
 * way: the windows' waiting, against the time that generations had any window in flight.
 */
export function hiddenShare(): string {
  const inFlight = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME, WINDOWS, {
    match: `${LEVEL}!="0"`,
  });
  const waited = rate(I.INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION, WINDOWS, {
    suffix: '_sum',
    match: STAGE_0,
  });
  return `clamp_min(1 - ${inFlight} / (${waited} > 0), 0)`;
}

/** Seconds of forward writes for each second of compute, by stage. */
export function writePerCompute(): string {
  const write = I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION;
  const scope = { ...STAGES, by: STAGE };
  return shareOf(rate(write, scope, { suffix: '_sum' }), computing(scope));
}
