import type { Context, MeterProvider } from '@opentelemetry/api';
import { warnOnce } from './guard.js';
import type { Tally } from './scheduler/counts.js';
import { internalsOf, type SchedulerInternals } from './scheduler/discovery.js';
import type { VerifyWindowScheduler } from './scheduler/scheduler.js';

/**
 * Who counts a scheduler, or traces it. An attachment that its owner asked for is explicit; the
 * others found the scheduler on the diagnostics channel or among the open ones.
 */
export interface Attachment {
  readonly isExplicit: boolean;
  /** Whether it counts or traces at present. One that does not gives way to one that does. */
  readonly isActive: boolean;
  /** What its owner was told to do; where two are told the same, nothing is lost with one of them. */
  readonly options: readonly unknown[];
  /**
   * Ends it for what is to come. What was begun is ended by it.
   *
   * @returns what the next owner goes on from.
   */
  release(scheduler: VerifyWindowScheduler): Tally | undefined;
}

/** Who traces a scheduler. */
export interface Tracing extends Attachment {
  /** The context to send along with a window of this id. */
  contextOf(windowId: number): Context;
}

/** What is attached to one scheduler, as its internals keep it. */
interface Attached {
  counting: Attachment | undefined;
  tracing: Tracing | undefined;
}

/**
 * What all copies of this package in a process share. The number in the name is the version of
 * everything in here: it rises with every change, so that copies which do not understand each other
 * do not meet.
 */
interface Shared {
  /** The hub of each meter provider: see `metrics/hub.ts`. */
  readonly hubs: WeakMap<MeterProvider, unknown>;
  /** The hub of those that wait for a global provider. */
  waitingHub: unknown;
}

const SHARED = Symbol.for('llama-stage-otel.attachments@1');
const onGlobal = globalThis as { [SHARED]?: Shared };
onGlobal[SHARED] ??= { hubs: new WeakMap(), waitingHub: undefined };

export const shared: Shared = onGlobal[SHARED];

/** Who counts a scheduler; `undefined` where nobody does. */
export function countingOf(scheduler: VerifyWindowScheduler): Attachment | undefined {
  return (internalsOf(scheduler) as Attached | undefined)?.counting;
}

/** Who traces a scheduler; `undefined` where nobody does. */
export function tracingOf(scheduler: VerifyWindowScheduler): Tracing | undefined {
  return (internalsOf(scheduler) as Attached | undefined)?.tracing;
}

/**
 * Attaches an owner to a scheduler, unless that has one which goes before: explicit attachment goes
 * before discovery, the first before later ones. What loses is said, unless nothing is lost with it.
 *
 * @param propose makes the new attachment.
 * @param start begins it, once the one before has been released.
 */
export function attach<Kind extends keyof Attached, Candidate extends NonNullable<Attached[Kind]>>(
  kind: Kind,
  scheduler: VerifyWindowScheduler,
  propose: (internals: SchedulerInternals) => Candidate,
  start: (candidate: Candidate, goOnFrom: Tally | undefined) => void,
): void {
  const internals = internalsOf(scheduler);
  if (internals === undefined) {
    warnOnce('what is not a scheduler of a version that this copy understands is left alone');
    return;
  }
  const candidate = propose(internals);
  const owner: Attachment | undefined = (internals as Attached)[kind];
  if (owner !== undefined && !goesBefore(candidate, owner)) {
    if (!isSame(candidate.options, owner.options)) {
      const loser = candidate.isExplicit ? 'who observed it later' : 'the instrumentation';
      warnOnce(
        `a scheduler has an owner of its ${kind} already: the options of ${loser} are ignored`,
      );
    }
    return;
  }
  const goOnFrom = owner?.release(scheduler);
  internals[kind] = candidate;
  start(candidate, goOnFrom);
}

function goesBefore(candidate: Attachment, owner: Attachment): boolean {
  if (candidate.isExplicit !== owner.isExplicit) return candidate.isExplicit;
  return candidate.isActive && !owner.isActive;
}

function isSame(left: readonly unknown[], right: readonly unknown[]): boolean {
  return left.length === right.length && left.every((value, index) => value === right[index]);
}
