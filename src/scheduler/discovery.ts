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
 * {@link Discoverable}, {@link SchedulerInternals} or {@link SweptSet} changes, so that copies that
 * do not understand each other do not meet.
 */
export const INTERNALS: unique symbol = Symbol.for('llama-stage-otel.scheduler@1');
/** Reads the clock for a collection. */
export const READ_NOW: unique symbol = Symbol.for('llama-stage-otel.scheduler.read-now@1');
/** Ends the subscription of an observer. */
export const UNSUBSCRIBE: unique symbol = Symbol.for('llama-stage-otel.scheduler.unsubscribe@1');

/** A scheduler, as the other layers know one. */
export interface Discoverable {
  readonly [INTERNALS]: SchedulerInternals;
  [READ_NOW](): PresentTimes;
  [UNSUBSCRIBE](observer: object): void;
}

/** How long the present state of a scheduler has lasted, in milliseconds. */
export interface PresentTimes {
  /** Since the last transition: they belong to the present occupancy level. */
  readonly pendingMs: number;
  /** Since the oldest window in flight was opened; 0 where there is none. */
  readonly oldestAgeMs: number;
}

/** What the other layers read of a scheduler that the public must not write to. */
export interface SchedulerInternals {
  /** The live counts. Whoever holds them keeps nothing else alive. */
  readonly counts: Counts;
  /** The scheduler itself, held weakly. */
  readonly reference: WeakRef<Discoverable>;
  /** Who counts it, and who traces it: see `attach.ts`. */
  counting: unknown;
  tracing: unknown;
}

/** The inside of a scheduler of this package in this version; `undefined` of anything else. */
export function internalsOf(value: unknown): SchedulerInternals | undefined {
  try {
    return (value as Discoverable | null | undefined)?.[INTERNALS];
  } catch {
    // A proxy or a getter of somebody else's.
    return undefined;
  }
}

const SWEEP_FROM = 1024;

/**
 * A set that is looked through for what is gone whenever it has doubled, so that the cost stays in
 * proportion to what was added.
 */
export class SweptSet<Entry> {
  readonly entries = new Set<Entry>();
  readonly #sweep: (entry: Entry) => void;
  #sweepAt = SWEEP_FROM;

  /** @param sweep takes an entry out of the set, if it is gone. */
  constructor(sweep: (entry: Entry) => void) {
    this.#sweep = sweep;
  }

  add(entry: Entry): void {
    if (this.entries.size >= this.#sweepAt) {
      for (const known of this.entries) this.#sweep(known);
      this.#sweepAt = Math.max(SWEEP_FROM, 2 * this.entries.size);
    }
    this.entries.add(entry);
  }
}

type OpenSchedulers = SweptSet<WeakRef<Discoverable>>;

/** The open schedulers of the process, whichever copy of this package made them. */
const shared = globalThis as { [INTERNALS]?: OpenSchedulers };
shared[INTERNALS] ??= new SweptSet((reference) => {
  if (reference.deref() === undefined) open.entries.delete(reference);
});
const open: OpenSchedulers = shared[INTERNALS];

const created = channel(SCHEDULER_CHANNEL);

/** Whether somebody listens to new schedulers. */
export function isAnyoneListening(): boolean {
  return created.hasSubscribers;
}

/** Makes a new scheduler known to those who listen, and to those who look for it later. */
export function announce(scheduler: Discoverable, reference: WeakRef<Discoverable>): void {
  open.add(reference);
  if (created.hasSubscribers) created.publish({ scheduler });
}

/** Takes a scheduler that was closed out of the open ones. */
export function retract(reference: WeakRef<Discoverable>): void {
  open.entries.delete(reference);
}

/** The open schedulers, for an instrumentation that is enabled after they were made. */
export function* openSchedulers(): Generator<Discoverable> {
  for (const reference of open.entries) {
    const scheduler = reference.deref();
    if (scheduler !== undefined) yield scheduler;
  }
}
