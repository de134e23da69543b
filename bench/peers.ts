import type { Attributes } from '@opentelemetry/api';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { VerifyWindowScheduler } from 'llama-stage-otel';
import * as prometheus from 'prom-client';
import { BenchReader } from './reader.js';
import { DEPTH, OUTCOME, type SignalName, type Subject } from './subject.js';

const LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32];
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** The instruments that the signals of a window take, however they are made. */
interface Instruments {
  opened(): void;
  completed(): void;
  inFlight(change: number): void;
  occupancyTime(seconds: number): void;
  occupancy(windows: number): void;
  duration(seconds: number): void;
  acceptedLength(tokens: number): void;
  proposedTokens(tokens: number): void;
  acceptedTokens(tokens: number): void;
}

/** The same signals by direct calls to the instruments of the OpenTelemetry SDK. */
export function directSdk(attributes: Attributes): Subject {
  const reader = new BenchReader();
  const meter = new MeterProvider({ readers: [reader] }).getMeter('bench');
  const histogram = (name: string, explicitBucketBoundaries: number[]) =>
    meter.createHistogram(name, { advice: { explicitBucketBoundaries } });
  const opened = meter.createCounter('opened');
  const completed = meter.createCounter('completed');
  const inFlight = meter.createUpDownCounter('inFlight');
  const occupancyTime = meter.createCounter('occupancyTime');
  const proposedTokens = meter.createCounter('proposedTokens');
  const acceptedTokens = meter.createCounter('acceptedTokens');
  const occupancy = histogram('occupancy', LENGTHS);
  const duration = histogram('duration', SECONDS);
  const acceptedLength = histogram('acceptedLength', LENGTHS);
  const count = Object.keys(attributes).length;
  return {
    ...instrumented(`SDK calls, ${count === 0 ? 'no' : count} attributes`, {
      opened: () => opened.add(1, attributes),
      completed: () => completed.add(1, attributes),
      inFlight: (change) => inFlight.add(change, attributes),
      occupancyTime: (seconds) => occupancyTime.add(seconds, attributes),
      occupancy: (windows) => occupancy.record(windows, attributes),
      duration: (seconds) => duration.record(seconds, attributes),
      acceptedLength: (tokens) => acceptedLength.record(tokens, attributes),
      proposedTokens: (tokens) => proposedTokens.add(tokens, attributes),
      acceptedTokens: (tokens) => acceptedTokens.add(tokens, attributes),
    }),
    exported: () =>
      reader.totals({
        opened: 'opened',
        completed: 'completed',
        duration: 'duration',
        occupancy: 'occupancy',
        acceptedLength: 'acceptedLength',
        proposedTokens: 'proposedTokens',
        acceptedTokens: 'acceptedTokens',
      }),
  };
}

/** The same signals by `prom-client`, its labels looked up at every call or bound once. */
export function promClient(labels: Record<string, string>, isBound: boolean): Subject {
  const registry = new prometheus.Registry();
  const common = { help: 'bench', labelNames: Object.keys(labels), registers: [registry] };
  const opened = new prometheus.Counter({ name: 'opened', ...common });
  const completed = new prometheus.Counter({ name: 'completed', ...common });
  const inFlight = new prometheus.Gauge({ name: 'inFlight', ...common });
  const occupancyTime = new prometheus.Counter({ name: 'occupancyTime', ...common });
  const proposedTokens = new prometheus.Counter({ name: 'proposedTokens', ...common });
  const acceptedTokens = new prometheus.Counter({ name: 'acceptedTokens', ...common });
  const occupancy = new prometheus.Histogram({ name: 'occupancy', buckets: LENGTHS, ...common });
  const duration = new prometheus.Histogram({ name: 'duration', buckets: SECONDS, ...common });
  const acceptedLength = new prometheus.Histogram({
    name: 'acceptedLength',
    buckets: LENGTHS,
    ...common,
  });
  const bound = {
    opened: opened.labels(labels),
    completed: completed.labels(labels),
    inFlight: inFlight.labels(labels),
    occupancyTime: occupancyTime.labels(labels),
    occupancy: occupancy.labels(labels),
    duration: duration.labels(labels),
    acceptedLength: acceptedLength.labels(labels),
    proposedTokens: proposedTokens.labels(labels),
    acceptedTokens: acceptedTokens.labels(labels),
  };
  const instruments: Instruments = isBound
    ? {
        opened: () => bound.opened.inc(1),
        completed: () => bound.completed.inc(1),
        inFlight: (change) => bound.inFlight.inc(change),
        occupancyTime: (seconds) => bound.occupancyTime.inc(seconds),
        occupancy: (windows) => bound.occupancy.observe(windows),
        duration: (seconds) => bound.duration.observe(seconds),
        acceptedLength: (tokens) => bound.acceptedLength.observe(tokens),
        proposedTokens: (tokens) => bound.proposedTokens.inc(tokens),
        acceptedTokens: (tokens) => bound.acceptedTokens.inc(tokens),
      }
    : {
        opened: () => opened.inc(labels, 1),
        completed: () => completed.inc(labels, 1),
        inFlight: (change) => inFlight.inc(labels, change),
        occupancyTime: (seconds) => occupancyTime.inc(labels, seconds),
        occupancy: (windows) => occupancy.observe(labels, windows),
        duration: (seconds) => duration.observe(labels, seconds),
        acceptedLength: (tokens) => acceptedLength.observe(labels, tokens),
        proposedTokens: (tokens) => proposedTokens.inc(labels, tokens),
        acceptedTokens: (tokens) => acceptedTokens.inc(labels, tokens),
      };
  const name = `prom-client, ${Object.keys(labels).length} labels, ${isBound ? 'bound' : 'looked up'}`;
  return { ...instrumented(name, instruments), exported: () => readRegistry(registry) };
}

async function readRegistry(registry: prometheus.Registry): Promise<Record<SignalName, number>> {
  const totals = new Map<string, number>();
  for (const { name, values } of await registry.getMetricsAsJSON()) {
    for (const value of values as { value: number; metricName?: string }[]) {
      const of = value.metricName?.endsWith('_count') ? value.metricName.slice(0, -6) : name;
      if (value.metricName !== undefined && !value.metricName.endsWith('_count')) continue;
      totals.set(of, (totals.get(of) ?? 0) + value.value);
    }
  }
  const total = (name: SignalName) => totals.get(name) ?? 0;
  return {
    opened: total('opened'),
    completed: total('completed'),
    duration: total('duration'),
    occupancy: total('occupancy'),
    acceptedLength: total('acceptedLength'),
    proposedTokens: total('proposedTokens'),
    acceptedTokens: total('acceptedTokens'),
  };
}

/** The bare scheduler, with the calls that a host would write around it. */
function instrumented(name: string, instruments: Instruments): Subject {
  const scheduler = new VerifyWindowScheduler({ depth: DEPTH });
  let id = 0;
  let changedAt = performance.now();
  return {
    name,
    run(windows) {
      for (let i = 0; i < windows; i++) {
        id++;
        scheduler.open(id, id);
        const openedAt = performance.now();
        instruments.opened();
        instruments.inFlight(1);
        instruments.occupancy(scheduler.inFlight);
        instruments.occupancyTime((openedAt - changedAt) / 1000);

        scheduler.completeNext(id, OUTCOME);
        changedAt = performance.now();
        instruments.completed();
        instruments.inFlight(-1);
        instruments.occupancyTime((changedAt - openedAt) / 1000);
        instruments.duration((changedAt - openedAt) / 1000);
        instruments.proposedTokens(OUTCOME.proposedTokens);
        instruments.acceptedTokens(OUTCOME.acceptedTokens);
        instruments.acceptedLength(OUTCOME.acceptedTokens);
      }
    },
  };
}
