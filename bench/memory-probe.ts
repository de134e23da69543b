/**
 * Measures memory in a process of its own, started with --expose-gc, and prints the figures as
 * JSON. Bytes are of the JavaScript heap and of what its arrays hold outside of it.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { VerifyWindowMetrics, VerifyWindowScheduler } from 'llama-stage-otel';
import { PreaggregatedHistograms } from 'llama-stage-otel/producer';
import { BenchReader } from './reader.js';
import { DEPTH, OUTCOME } from './subject.js';

const LIVE = 20_000;
const SCHEDULERS = 1_000_000;
const WINDOWS = 10_000_000;

const histograms = new PreaggregatedHistograms();
const reader = new BenchReader({ metricProducers: [histograms.producer()] });
const meterProvider = new MeterProvider({ readers: [reader] });
const metrics = new VerifyWindowMetrics({ meterProvider, histograms });

/** The first run fills caches, and grows hash tables that are then used again: not counted. */
await afterForgotten(SCHEDULERS);
await afterClosed(SCHEDULERS);

const bareBytes = await perScheduler(() => new VerifyWindowScheduler({ depth: DEPTH }));
const observedBytes = await perScheduler(observed);
const fullBytes = await perScheduler(() => {
  const scheduler = observed();
  for (let i = 0; i < DEPTH; i++) scheduler.open(i, i);
  return scheduler;
});
const windowsBytes = await growth(async () => {
  const scheduler = observed();
  for (let id = 1; id <= WINDOWS; id++) {
    scheduler.open(id, id);
    scheduler.completeNext(id, OUTCOME);
  }
  scheduler.close();
});
// Once more for each kind of end: the tables of one have another size than those of the other.
await afterClosed(SCHEDULERS);
const closedBytes = await growth(() => afterClosed(SCHEDULERS));
await afterForgotten(SCHEDULERS);
const forgottenBytes = await growth(() => afterForgotten(SCHEDULERS));
console.log(
  JSON.stringify({
    liveBytes: { bare: bareBytes, observed: observedBytes, observedAndFull: fullBytes },
    growthBytes: {
      afterTenMillionWindows: windowsBytes,
      afterAMillionClosed: closedBytes,
      afterAMillionForgotten: forgottenBytes,
    },
  }),
);

function observed(): VerifyWindowScheduler {
  const scheduler = new VerifyWindowScheduler({ depth: DEPTH });
  metrics.observe(scheduler);
  return scheduler;
}

async function afterClosed(count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const scheduler = observed();
    scheduler.completeNext(scheduler.open(i, i).id, OUTCOME);
    scheduler.close();
    if (i % 10_000 === 0) await nextTurn();
  }
}

async function afterForgotten(count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const scheduler = observed();
    scheduler.completeNext(scheduler.open(i, i).id, OUTCOME);
    // Finalizers run between turns of the event loop, as in a worker that serves requests.
    if (i % 1000 === 0) await nextTurn();
  }
}

async function perScheduler(make: () => VerifyWindowScheduler): Promise<number> {
  const kept: VerifyWindowScheduler[] = new Array(LIVE);
  const before = await heldBytes();
  for (let i = 0; i < LIVE; i++) kept[i] = make();
  const bytes = ((await heldBytes()) - before) / LIVE;
  for (const scheduler of kept) scheduler.close();
  return Math.round(bytes);
}

async function growth(work: () => Promise<void>): Promise<number> {
  const before = await heldBytes();
  await work();
  return (await heldBytes()) - before;
}

async function heldBytes(): Promise<number> {
  for (let i = 0; i < 5; i++) {
    globalThis.gc?.();
    await nextTurn();
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
