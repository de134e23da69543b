import { expect, test } from 'vitest';
import { now } from '../../examples/pipeline/clock.js';
import { Compute, DelayLine } from '../../examples/pipeline/simulated-time.js';

test('compute takes one job at a time, and never less than its time', async () => {
  const compute = new Compute(2.5);
  const startedAt = now();
  const jobs = [1, 2, 3].map(async (job) => {
    await compute.run(startedAt);
    return now() - startedAt - 2.5 * job;
  });
  for (const late of await Promise.all(jobs)) expect(late).toBeGreaterThanOrEqual(0);
});

test('a link keeps the order, and delivers nothing before it is due', async () => {
  const delivered: string[] = [];
  await new Promise<void>((resolve) => {
    const link = new DelayLine<string>(1.5, (message, dueAt) => {
      expect(now()).toBeGreaterThanOrEqual(dueAt);
      delivered.push(message);
      if (message === 'last') resolve();
    });
    for (const message of ['first', 'second', 'last']) link.push(message);
  });
  expect(delivered).toEqual(['first', 'second', 'last']);
});
