import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { VerifyWindowMetrics, VerifyWindowScheduler } from 'llama-stage-otel';
import { PreaggregatedHistograms } from 'llama-stage-otel/producer';
import { quantile } from './quantile.js';
import { BenchReader } from './reader.js';
import { DEPTH, OUTCOME } from './subject.js';

export interface CollectionTime {
  readonly live: number;
  /** Windows that went by before, over all schedulers. */
  readonly windows: number;
  readonly medianMs: number;
  readonly quartilesMs: readonly [number, number];
  readonly samples: number;
}

const SAMPLES = 25;

/** How long one collection takes, with this many live schedulers and windows gone by. */
export async function collectionTime(live: number, windows: number): Promise<CollectionTime> {
  const histograms = new PreaggregatedHistograms();
  const reader = new BenchReader({ metricProducers: [histograms.producer()] });
  const meterProvider = new MeterProvider({ readers: [reader] });
  const metrics = new VerifyWindowMetrics({ meterProvider, histograms });
  const schedulers = Array.from(
    { length: live },
    () => new VerifyWindowScheduler({ depth: DEPTH }),
  );
  for (const scheduler of schedulers) metrics.observe(scheduler);
  for (let done = 0; done < windows; done++) {
    const scheduler = schedulers[done % live] as VerifyWindowScheduler;
    scheduler.completeNext(scheduler.open(done, done).id, OUTCOME);
  }

  const samples: number[] = [];
  for (let i = 0; i < SAMPLES + 5; i++) {
    const startedAt = performance.now();
    await reader.collect();
    if (i >= 5) samples.push(performance.now() - startedAt);
  }
  for (const scheduler of schedulers) scheduler.close();
  return {
    live,
    windows,
    medianMs: quantile(samples, 0.5),
    quartilesMs: [quantile(samples, 0.25), quantile(samples, 0.75)],
    samples: samples.length,
  };
}
