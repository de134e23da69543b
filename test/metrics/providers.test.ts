import { createNoopMeter, type MeterProvider, metrics as metricsApi } from '@opentelemetry/api';
import { afterEach, describe, expect, test } from 'vitest';
import * as METRICS from '../../semconv/metrics.js';
import {
  GenerationTelemetry,
  StageTelemetry,
  VerifyWindowMetrics,
  VerifyWindowScheduler,
} from '../../src/index.js';
import { ManualReader, providerWith } from './collected.js';

const OPENED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const IN_FLIGHT = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT;
const OCCUPANCY = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY;
const DURATION = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION;

afterEach(() => metricsApi.disable());

function newSdk() {
  const reader = new ManualReader();
  return { reader, provider: providerWith(reader) };
}

/** As the API's own provider is, until a real one is registered. */
const noopProvider: MeterProvider = { getMeter: createNoopMeter };

describe('a bridge that is given a provider', () => {
  test('moves to it at once, with all that was counted before', async () => {
    const [first, second] = [newSdk(), newSdk()];
    const bridge = new VerifyWindowMetrics();
    bridge.setMeterProvider(first.provider);
    const scheduler = new VerifyWindowScheduler({ depth: 4 });
    bridge.observe(scheduler, { model: 'm' });
    scheduler.open(0, 0);
    expect((await first.reader.read()).sum(OPENED, { model: 'm' })).toBe(1);
    bridge.setMeterProvider(second.provider);
    scheduler.open(8, 0);
    scheduler.completeNext(1);
    const collected = await second.reader.read();
    expect([collected.sum(OPENED), collected.sum(IN_FLIGHT)]).toEqual([2, 1]);
    expect([collected.count(OCCUPANCY), collected.count(DURATION)]).toEqual([1, 1]);
    const left = await first.reader.read();
    expect([left.sum(OPENED), left.sum(IN_FLIGHT)]).toEqual([1, 0]);
    expect([left.count(OCCUPANCY), left.count(DURATION)]).toEqual([1, 0]);
  });

  test('is counted once however often it is given, there and back', async () => {
    const [first, second] = [newSdk(), newSdk()];
    const bridge = new VerifyWindowMetrics();
    const scheduler = new VerifyWindowScheduler({ depth: 8 });
    bridge.observe(scheduler);
    const sequence = [first, first, second, first, second, second, first];
    for (const [index, { provider, reader }] of sequence.entries()) {
      bridge.setMeterProvider(provider);
      scheduler.open(index, index);
      expect((await reader.read()).sum(OPENED)).toBe(index + 1);
    }
    expect((await first.reader.read()).count(OCCUPANCY)).toBe(4);
    expect((await second.reader.read()).count(OCCUPANCY)).toBe(3);
  });

  test('prefers it to the global one, whenever that is registered', async () => {
    const [given, global] = [newSdk(), newSdk()];
    const bridge = new VerifyWindowMetrics();
    bridge.setMeterProvider(given.provider);
    metricsApi.setGlobalMeterProvider(global.provider);
    const scheduler = new VerifyWindowScheduler({ depth: 1 });
    bridge.observe(scheduler);
    scheduler.open(0, 0);
    expect((await given.reader.read()).sum(OPENED)).toBe(1);
    expect((await global.reader.read()).names).toEqual([]);
  });

  test('waits for the global one where it is given one that does nothing', async () => {
    const bridge = new VerifyWindowMetrics();
    bridge.setMeterProvider(noopProvider);
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    bridge.observe(scheduler);
    scheduler.open(0, 0);
    const { reader, provider } = newSdk();
    metricsApi.setGlobalMeterProvider(provider);
    scheduler.open(8, 0);
    const collected = await reader.read();
    expect([collected.sum(OPENED), collected.count(OCCUPANCY)]).toEqual([2, 1]);
  });

  test('goes back to the global one where it is given one that does nothing', async () => {
    const [given, global] = [newSdk(), newSdk()];
    metricsApi.setGlobalMeterProvider(global.provider);
    const bridge = new VerifyWindowMetrics();
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    bridge.observe(scheduler);
    bridge.setMeterProvider(given.provider);
    scheduler.open(0, 0);
    bridge.setMeterProvider(noopProvider);
    scheduler.open(8, 0);
    expect((await global.reader.read()).sum(OPENED)).toBe(2);
    expect((await global.reader.read()).count(OCCUPANCY)).toBe(1);
    expect((await given.reader.read()).count(OCCUPANCY)).toBe(1);
  });
});

/** What records histograms as generations and stages go by. */
const recording: [string, string[], () => () => unknown][] = [
  [
    'a generation',
    [
      METRICS.METRIC_LLAMA_STAGE_GENERATION_COUNT,
      METRICS.METRIC_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS,
      METRICS.METRIC_GEN_AI_SERVER_REQUEST_DURATION,
    ],
    () => {
      const generations = new GenerationTelemetry();
      return () => generations.run({ depth: 1 }, () => {});
    },
  ],
  [
    'a stage',
    [METRICS.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION],
    () => {
      const stage = new StageTelemetry({ index: 0 });
      return () => stage.window({}, ({ compute }) => compute(() => {}));
    },
  ],
];

test.each(recording)('the histograms of %s follow the global provider', async (_, names, make) => {
  const record = make();
  await record();
  const sdks = [newSdk(), newSdk(), newSdk()];
  for (const [index, { provider }] of sdks.entries()) {
    metricsApi.setGlobalMeterProvider(provider);
    for (let i = 0; i <= index; i++) await record();
    metricsApi.disable();
    await record();
  }
  const collected = await Promise.all(sdks.map(({ reader }) => reader.read()));
  const histogram = names.at(-1) ?? '';
  expect(collected.map((each) => each.count(histogram))).toEqual([1, 2, 3]);
  expect(collected.map((each) => each.names)).toEqual([names, names, names]);
});
