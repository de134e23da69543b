import { channel } from 'node:diagnostics_channel';
import { afterEach, expect, it } from 'vitest';
import {
  SCHEDULER_CHANNEL,
  type SchedulerCreated,
  VerifyWindowScheduler,
} from '../../src/index.js';

const announcements: SchedulerCreated[] = [];
const listener = (message: unknown) => {
  announcements.push(message as SchedulerCreated);
};

afterEach(() => {
  channel(SCHEDULER_CHANNEL).unsubscribe(listener);
  announcements.length = 0;
});

it('has the name that is documented', () => {
  expect(SCHEDULER_CHANNEL).toBe('llama-stage-otel.scheduler');
});

it('announces each new scheduler once', () => {
  channel(SCHEDULER_CHANNEL).subscribe(listener);
  const scheduler = new VerifyWindowScheduler({ depth: 2 });
  scheduler.open(0, 0);
  scheduler.stats();
  scheduler.close();
  const another = new VerifyWindowScheduler({ depth: 2 });
  expect(announcements).toEqual([{ scheduler }, { scheduler: another }]);
  expect(announcements[0]?.scheduler).toBe(scheduler);
});

it('hands over a scheduler that is ready for use', () => {
  let id: number | undefined;
  const use = (message: unknown) => {
    id = (message as SchedulerCreated).scheduler.open(0, 0).id;
  };
  channel(SCHEDULER_CHANNEL).subscribe(use);
  try {
    const scheduler = new VerifyWindowScheduler({ depth: 2, firstWindowId: 7 });
    expect(id).toBe(7);
    expect(scheduler.inFlight).toBe(1);
  } finally {
    channel(SCHEDULER_CHANNEL).unsubscribe(use);
  }
});

it('does not announce a scheduler that was not made', () => {
  channel(SCHEDULER_CHANNEL).subscribe(listener);
  expect(() => new VerifyWindowScheduler({ depth: 0.5 })).toThrow();
  expect(announcements).toEqual([]);
});

it('publishes nothing while nobody listens', () => {
  const watched = channel(SCHEDULER_CHANNEL);
  expect(watched.hasSubscribers).toBe(false);
  const published: unknown[] = [];
  // Before anybody subscribes, `publish` is the inherited one.
  watched.publish = (message) => published.push(message);
  try {
    new VerifyWindowScheduler({ depth: 2 });
  } finally {
    Reflect.deleteProperty(watched, 'publish');
  }
  expect(published).toEqual([]);
});
