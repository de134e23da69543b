import type { VerifyWindowScheduler } from './scheduler.js';

/** How many entries there may be before those of forgotten schedulers are looked for. */
const SWEEP_FROM = 1024;

/** The open schedulers that nobody listened for when they were made, held weakly. */
const unannounced = new Set<WeakRef<VerifyWindowScheduler>>();
let sweepAt = SWEEP_FROM;

/** Adds a scheduler. @returns what takes it out again. */
export function addUnannounced(scheduler: VerifyWindowScheduler): WeakRef<VerifyWindowScheduler> {
  if (unannounced.size >= sweepAt) sweep();
  const entry = new WeakRef(scheduler);
  unannounced.add(entry);
  return entry;
}

export function removeUnannounced(entry: WeakRef<VerifyWindowScheduler>): void {
  unannounced.delete(entry);
}

/**
 * The schedulers that are open, and that were made while nobody listened on `SCHEDULER_CHANNEL`:
 * those that an instrumentation enabled late has missed.
 */
export function* unannouncedSchedulers(): Generator<VerifyWindowScheduler> {
  for (const entry of unannounced) {
    const scheduler = entry.deref();
    if (scheduler !== undefined) yield scheduler;
  }
}

/** Doubling the mark keeps the cost of sweeping in proportion to the schedulers made. */
function sweep(): void {
  for (const entry of unannounced) if (entry.deref() === undefined) unannounced.delete(entry);
  sweepAt = Math.max(SWEEP_FROM, 2 * unannounced.size);
}
