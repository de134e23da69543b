import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { VerifyWindowMetrics, VerifyWindowScheduler } from 'llama-stage-otel';
import { PreaggregatedHistograms } from 'llama-stage-otel/producer';
import * as semconv from 'llama-stage-otel/semconv';
import { BenchReader } from './reader.js';
import { DEPTH, OUTCOME, type Subject } from './subject.js';

const NAMES = {
  opened: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
  completed: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED,
  duration: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  occupancy: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY,
  acceptedLength: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
  proposedTokens: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS,
  acceptedTokens: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS,
};

/** The floor: a transition cannot cost less than reading the clock. */
export function twoClockReadings(): Subject & { readonly sum: number } {
  let sum = 0;
  return {
    name: 'two clock readings',
    run(windows) {
      for (let i = 0; i < windows; i++) sum += performance.now() + performance.now();
    },
    // Whoever can read the sum keeps the readings from being optimised away.
    get sum() {
      return sum;
    },
  };
}

export function bareScheduler(): Subject {
  return scheduling('the bare scheduler', new VerifyWindowScheduler({ depth: DEPTH }));
}

export function withProducerHistograms(): Subject {
  const histograms = new PreaggregatedHistograms();
  const reader = new BenchReader({ metricProducers: [histograms.producer()] });
  const meterProvider = new MeterProvider({ readers: [reader] });
  const metrics = new VerifyWindowMetrics({ meterProvider, histograms });
  return observed('all metrics, producer histograms', metrics, reader);
}

export function withMeterHistograms(): Subject {
  const reader = new BenchReader();
  const meterProvider = new MeterProvider({ readers: [reader] });
  return observed(
    'all metrics, Meter histograms',
    new VerifyWindowMetrics({ meterProvider }),
    reader,
  );
}

/** Metrics whose every record throws. */
export function withBrokenObserver(): Subject {
  const scheduler = new VerifyWindowScheduler({ depth: DEPTH });
  const broken = () => {
    throw new Error('broken');
  };
  scheduler.subscribe({ opened: broken, completed: broken });
  return scheduling('an observer that always throws', scheduler);
}

function observed(name: string, metrics: VerifyWindowMetrics, reader: BenchReader): Subject {
  const scheduler = new VerifyWindowScheduler({ depth: DEPTH });
  metrics.observe(scheduler);
  return { ...scheduling(name, scheduler), exported: () => reader.totals(NAMES) };
}

export function scheduling(name: string, scheduler: VerifyWindowScheduler): Subject {
  let id = 0;
  return {
    name,
    run(windows) {
      for (let i = 0; i < windows; i++) {
        id++;
        scheduler.open(id, id);
        scheduler.completeNext(id, OUTCOME);
      }
    },
  };
}
