import { channel } from 'node:diagnostics_channel';
import type { VerifyWindowScheduler } from './scheduler.js';

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

export function announce(scheduler: VerifyWindowScheduler): void {
  if (created.hasSubscribers) created.publish({ scheduler } satisfies SchedulerCreated);
}
