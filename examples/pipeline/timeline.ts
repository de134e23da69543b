import type { Interval } from './intervals.js';
import type { Visit } from './messages.js';

/** When the stages computed windows, and when the links carried them. */
export class Timeline {
  readonly computes: Interval[] = [];
  readonly links: Interval[] = [];

  /** Adds the journey of one window, from stage 0 down the chain and back. */
  add(visits: readonly Visit[], repliedAt: number): void {
    for (const [index, { compute, sentAt }] of visits.entries()) {
      this.computes.push(compute);
      this.links.push({ from: sentAt, to: visits[index + 1]?.arrivedAt ?? repliedAt });
    }
  }
}
