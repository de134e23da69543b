import { ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL } from '../../../semconv/attributes.js';
import * as I from '../../../semconv/instruments.js';
import { labelName, prometheusName } from '../prometheus-names.js';
import { mean, rate, type Scope, share, within } from '../promql.js';
import { STAGE } from './variables.js';

const LEVEL = labelName(ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL);

/** One process, and where it stands in the chain. */
const STAGE_WORKER = `${STAGE}, job, instance`;

/** What an instrument stands at, over all workers. */
export function current(
  instrument: I.Instrument,
  { by, match = '' }: Scope,
  operation: 'sum' | 'max' = 'sum',
): string {
  return `${operation}${by ? ` by (${by}) ` : ''}(${prometheusName(instrument)}{${match}})`;
}

/** Each value of a label as a share of all of them. */
export function sharesBy(label: string, counter: I.Instrument, scope: Scope): string {
  return `${rate(counter, { ...scope, by: label })} / on () group_left () (${rate(counter, scope)} > 0)`;
}

/** Depth of a generation, on average over those under way. */
export function depth(scope: Scope): string {
  return share(
    current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY, scope),
    current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT, scope),
  );
}

/** Generations under way, on average over the interval. */
export function generationsUnderWay(scope: Scope): string {
  return rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME, scope);
}

/** Time that stale windows took in one part of the work, as a share of what all took in it. */
export function staleShare(
  part: I.Instrument,
  all: I.HistogramInstrument,
  scope: Scope,
  match = '',
): string {
  return share(rate(part, scope), rate(all, scope, { suffix: '_sum', match }));
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
export function workers({ match = '', range }: Scope): string {
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
export function computePerWindow(scope: Scope): string {
  return `sum(${meanCompute(scope)})`;
}

/** Seconds that the writes of a window take on its way, over all stages. */
export function writesPerWindow(scope: Scope): string {
  const write = I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION;
  return `sum(${mean(write, { ...scope, by: STAGE })})`;
}

/**
 * Seconds of a window's way that are neither compute nor a write: links, and queues before stages.
 * It is what stage 0 waited, without what the stages after it did meanwhile.
 */
export function linksAndQueuesPerWindow(scope: Scope): string {
  const later = { ...within(scope, LATER_STAGES), by: STAGE };
  const first = within(scope, STAGE_0);
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
export function hiddenShare(scope: Scope): string {
  const inFlight = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME, scope, {
    match: `${LEVEL}!="0"`,
  });
  const waited = rate(I.INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION, scope, {
    suffix: '_sum',
    match: STAGE_0,
  });
  return `clamp_min(1 - ${inFlight} / (${waited} > 0), 0)`;
}

/** Seconds of forward writes for each second of compute, by stage. */
export function writePerCompute(scope: Scope): string {
  const write = I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION;
  const each = { ...scope, by: STAGE };
  return share(rate(write, each, { suffix: '_sum' }), computing(each));
}
