import { channel } from 'node:diagnostics_channel';
import type { Counts } from './counts.js';

/**
 * Name of the `node:diagnostics_channel` on which each new scheduler is announced, from inside
 * its constructor, while somebody listens.
 */
export const SCHEDULER_CHANNEL = 'llama-stage-otel.scheduler';

/**
 * Where a scheduler shows its inside to the other layers, also to those of another copy of this
 * package in the process. The number is the version of what is there: it rises whenever
 * {@link SchedulerInternals} or {@link OpenSchedulers} changes, so that copies that do not
 * understand each other do not meet.
 */
export const INTERNALS: unique symbol = Symbol.for('llama-stage-otel.scheduler@1');

/** A scheduler, as far as this file knows one. */
interface Discoverable {
  [INTERNALS](): SchedulerInternals;
}

/** What the other layers read of a scheduler that the public must not write to. */
export interface SchedulerInternals {
  /** The live counts. Whoever holds them keeps nothing else alive. */
  readonly counts: Counts;
  /** The scheduler itself, held weakly. */
  readonly reference: WeakRef<Discoverable>;
  /** Milliseconds since the last transition: they belong to the present occupancy level. */
  readonly pendingMs: number;
}

/** The inside of a scheduler of this package in this version; `undefined` of anything else. */
export function internalsOf(value: unknown): SchedulerInternals | undefined {
  try {
    return (value as Discoverable | null | undefined)?.[INTERNALS]?.();
  } catch {
    // A proxy or a getter of somebody else's.
    return undefined;
  }
}

/** The open schedulers of the process, whichever copy of this package made them. */
interface OpenSchedulers {
  readonly references: Set<WeakRef<Discoverable>>;
  /** At how many references those of forgotten schedulers are looked for. */
  sweepAt: number;
}

const SWEEP_FROM = 1024;

const shared = globalThis as { [INTERNALS]?: OpenSchedulers };
shared[INTERNALS] ??= { references: new Set(), sweepAt: SWEEP_FROM };
const open = shared[INTERNALS];

const created = channel(SCHEDULER_CHANNEL);

/** Makes a new scheduler known to those who listen, and to those who look for it later. */
export function announce(scheduler: Discoverable, reference: WeakRef<Discoverable>): void {
  if (open.references.size >= open.sweepAt) sweep();
  open.references.add(reference);
  if (created.hasSubscribers) created.publish({ scheduler });
}

/** Takes a scheduler that was closed out of the open ones. */
export function retract(reference: WeakRef<Discoverable>): void {
  open.references.delete(reference);
}

/** The open schedulers, for an instrumentation that is enabled after they were made. */
export function* openSchedulers(): Generator<Discoverable> {
  for (const reference of open.references) {
    const scheduler = reference.deref();
    if (scheduler !== undefined) yield scheduler;
  }
}

/** Doubling the mark keeps the cost of sweeping in proportion to the schedulers made. */
function sweep(): void {
  for (const reference of open.references) {
    if (reference.deref() === undefined) open.references.delete(reference);
  }
  open.sweepAt = Math.max(SWEEP_FROM, 2 * open.references.size);
}
