import { channel } from 'node:diagnostics_channel';
import type { VerifyWindowScheduler } from './scheduler.js';
import { addUnannounced } from './unannounced.js';

/**
 * Name of the `node:diagnostics_channel` on which each new scheduler is announced, from inside
 * its constructor, while somebody listens.
 */
export const SCHEDULER_CHANNEL = 'llama-stage-otel.scheduler';

/** The message on {@link SCHEDULER_CHANNEL}. */
export interface SchedulerCreated {
  readonly scheduler: VerifyWindowScheduler;
}

const created = channel(SCHEDULER_CHANNEL);

/** Announces a scheduler. @returns its entry among the unannounced ones, where nobody listens. */
export function announce(
  scheduler: VerifyWindowScheduler,
): WeakRef<VerifyWindowScheduler> | undefined {
  if (!created.hasSubscribers) return addUnannounced(scheduler);
  created.publish({ scheduler } satisfies SchedulerCreated);
  return undefined;
}
