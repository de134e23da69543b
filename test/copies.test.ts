import { execFileSync } from 'node:child_process';
import { channel } from 'node:diagnostics_channel';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { context, metrics, trace } from '@opentelemetry/api';
import { build } from 'vite';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  METRIC_LLAMA_STAGE_GENERATION_COUNT,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../semconv/index.js';
import { PreaggregatedHistograms } from '../src/histograms/index.js';
import type { VerifyWindowScheduler } from '../src/index.js';
import { newCopy } from './copy.js';
import { cleanUp, instrumentations, schedulers, verify } from './host.js';
import { expectOnePointForEachSeries, ManualReader, providerWith } from './metrics/collected.js';
import { type Packed, pack, ROOT } from './package/packed.js';
import { listenToDiag, Tracing, useApi } from './tracing/sdk.js';

const OPENED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const DURATION = METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION;
const SCHEDULERS = METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT;

type Copy = Awaited<ReturnType<typeof newCopy>>;

let copies: { readonly first: Copy; readonly second: Copy };

useApi();

beforeEach(async () => {
  copies = { first: await newCopy(), second: await newCopy() };
});

afterEach(cleanUp);

function newScheduler({ VerifyWindowScheduler }: Copy): VerifyWindowScheduler {
  const scheduler = new VerifyWindowScheduler({ depth: 2 });
  schedulers.push(scheduler);
  return scheduler;
}

function instrument({ VerifyWindowInstrumentation }: Copy): void {
  instrumentations.push(new VerifyWindowInstrumentation());
}

/** Registers the real SDK. */
function register(reader = new ManualReader()) {
  const tracing = new Tracing();
  trace.setGlobalTracerProvider(tracing.provider);
  metrics.setGlobalMeterProvider(providerWith(reader));
  return { tracing, reader };
}

test('two copies are two: they share no class', () => {
  expect(copies.first.VerifyWindowScheduler).not.toBe(copies.second.VerifyWindowScheduler);
});

describe.each([
  ['first', 'second'],
  ['second', 'first'],
] as const)('a scheduler of the %s copy', (own, other) => {
  test.each([
    ['its own', [own]],
    ['the other', [other]],
    ['both, its own first', [own, other]],
    ['both, the other first', [other, own]],
  ])('is counted once and traced once by %s', async (_, observers) => {
    const { tracing, reader } = register();
    const scheduler = newScheduler(copies[own]);
    tracing.tracer.startActiveSpan('generation', () => {
      for (const name of observers) new copies[name].PipelineTelemetry().observe(scheduler);
    });
    verify(scheduler, 3);
    const collected = await reader.read();
    expectOnePointForEachSeries(collected);
    expect([OPENED, SCHEDULERS].map((name) => collected.sum(name))).toEqual([3, 1]);
    expect(collected.count(DURATION)).toBe(3);
    expect(tracing.spans(SPAN_LLAMA_STAGE_VERIFY_WINDOW)).toHaveLength(3);
  });

  test('is found by the instrumentation of the other', async () => {
    const { tracing, reader } = register();
    const early = newScheduler(copies[own]);
    instrument(copies[other]);
    const late = tracing.tracer.startActiveSpan('generation', () => newScheduler(copies[own]));
    verify(early, 1);
    verify(late, 2);
    expect((await reader.read()).sum(OPENED)).toBe(3);
    expect(tracing.spans(SPAN_LLAMA_STAGE_VERIFY_WINDOW)).toHaveLength(2);
  });

  test('is counted once and traced once where both instrument, and one observes', async () => {
    const { tracing, reader } = register();
    instrument(copies[other]);
    instrument(copies[own]);
    tracing.tracer.startActiveSpan('generation', () => {
      const scheduler = newScheduler(copies[own]);
      new copies[other].PipelineTelemetry().observe(scheduler);
      verify(scheduler, 2);
    });
    const collected = await reader.read();
    expectOnePointForEachSeries(collected);
    expect([collected.sum(OPENED), collected.count(DURATION)]).toEqual([2, 2]);
    expect(tracing.spans(SPAN_LLAMA_STAGE_VERIFY_WINDOW)).toHaveLength(2);
  });

  test('has one context for a window, whichever copy is asked', () => {
    const { tracing } = register();
    const scheduler = newScheduler(copies[own]);
    const parent = trace.setSpan(context.active(), tracing.tracer.startSpan('generation'));
    new copies[other].VerifyWindowTracer().observe(scheduler, parent);
    const window = scheduler.open(0, 0);
    const sent = [own, other].map((name) => {
      return trace.getSpanContext(copies[name].windowContext(scheduler, window));
    });
    scheduler.completeNext(window.id);
    const span = tracing.span(SPAN_LLAMA_STAGE_VERIFY_WINDOW).spanContext();
    expect(sent.map((spanContext) => spanContext?.spanId)).toEqual([span.spanId, span.spanId]);
  });
});

describe('bridges of two copies on one meter provider', () => {
  test.each([
    ['that is there before', true],
    ['that is registered after', false],
  ])('%s report the sum, with one point for each series', async (_, isBefore) => {
    const reader = new ManualReader();
    if (isBefore) register(reader);
    for (const copy of Object.values(copies)) {
      const scheduler = newScheduler(copy);
      new copy.VerifyWindowMetrics().observe(scheduler, { model: 'm' });
      verify(scheduler, 2);
    }
    if (!isBefore) register(reader);
    for (const scheduler of schedulers) verify(scheduler, 3);
    for (let times = 0; times < 2; times++) {
      const collected = await reader.read();
      expectOnePointForEachSeries(collected);
      expect([OPENED, SCHEDULERS].map((name) => collected.sum(name))).toEqual([10, 2]);
      expect(collected.points(OPENED)).toHaveLength(1);
      expect(collected.count(DURATION)).toBe(isBefore ? 10 : 6);
    }
  });

  test('record histograms in one way, the one that was asked for', async () => {
    const histograms = new PreaggregatedHistograms();
    const { reader } = register(new ManualReader({ metricProducers: [histograms.producer()] }));
    const { first, second } = copies;
    const bridges = [
      new first.VerifyWindowMetrics(),
      new second.VerifyWindowMetrics({ histograms }),
    ];
    for (const bridge of bridges) {
      const scheduler = newScheduler(first);
      bridge.observe(scheduler);
      verify(scheduler, 2);
    }
    const collected = await reader.read();
    expectOnePointForEachSeries(collected);
    expect(collected.count(DURATION)).toBe(4);
  });

  test('count generations in one series', async () => {
    const { reader } = register();
    for (const { PipelineTelemetry } of Object.values(copies)) {
      await new PipelineTelemetry().generation({ depth: 1 }).run(() => {});
    }
    const collected = await reader.read();
    expectOnePointForEachSeries(collected);
    const counts = collected.points(METRIC_LLAMA_STAGE_GENERATION_COUNT);
    expect(counts.map(({ value }) => value)).toEqual([2, 0, 0, 0]);
  });
});

describe('a scheduler of another version', () => {
  /** It shows its inside under another symbol, and nobody knows what is there. */
  const newForeign = () => {
    const subscribe = vi.fn();
    const show = vi.fn();
    const scheduler = { depth: 2, subscribe, [Symbol.for('llama-stage-otel.scheduler@2')]: show };
    return { touched: [subscribe, show], scheduler: scheduler as unknown as VerifyWindowScheduler };
  };

  test('that is observed is left alone, with one warning', async () => {
    const warn = listenToDiag('warn');
    const { tracing, reader } = register();
    const { touched, scheduler } = newForeign();
    tracing.tracer.startActiveSpan('generation', () => {
      const telemetry = new copies.first.PipelineTelemetry();
      for (let times = 0; times < 2; times++) telemetry.observe(scheduler);
      const known = newScheduler(copies.second);
      telemetry.observe(known);
      verify(known, 1);
    });
    for (const mock of touched) expect(mock).not.toHaveBeenCalled();
    expect(warn.mock.calls).toEqual([[expect.stringContaining('not a scheduler of a version')]]);
    expect((await reader.read()).sum(OPENED)).toBe(1);
  });

  test('that is announced is left alone, with one warning', async () => {
    const warn = listenToDiag('warn');
    const { reader } = register();
    instrument(copies.first);
    const { touched, scheduler } = newForeign();
    for (let times = 0; times < 2; times++) {
      channel(copies.first.SCHEDULER_CHANNEL).publish({ scheduler });
    }
    verify(newScheduler(copies.second), 1);
    for (const mock of touched) expect(mock).not.toHaveBeenCalled();
    expect(warn.mock.calls).toEqual([[expect.stringContaining('that is not understood')]]);
    expect((await reader.read()).sum(OPENED)).toBe(1);
  });
});

/** What a program prints that has an SDK, and the package as it was built, three times. */
const PROGRAM = `
  import { context, metrics, trace } from '@opentelemetry/api';
  import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
  import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics';
  import * as sdk from '@opentelemetry/sdk-trace-base';
  import 'llama-stage-otel/register';
  const copies = [await import('llama-stage-otel')];
  for (const path of process.argv.slice(1)) copies.push(await import(path));

  class Reader extends MetricReader { async onForceFlush() {} async onShutdown() {} }
  const reader = new Reader();
  const exporter = new sdk.InMemorySpanExporter();
  const spanProcessors = [new sdk.SimpleSpanProcessor(exporter)];
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  trace.setGlobalTracerProvider(new sdk.BasicTracerProvider({ spanProcessors }));
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());

  const schedulers = [];
  const sent = [];
  for (const maker of copies) {
    for (const observer of [undefined, ...copies]) {
      trace.getTracer('host').startActiveSpan('generation', () => {
        const scheduler = new maker.VerifyWindowScheduler({ depth: 1 });
        if (observer) new observer.PipelineTelemetry().observe(scheduler);
        const window = scheduler.open(0, 0);
        for (const { windowContext } of copies) {
          sent.push(trace.getSpanContext(windowContext(scheduler, window)).spanId);
        }
        scheduler.completeNext(window.id);
        schedulers.push(scheduler);
      });
    }
  }
  const { resourceMetrics } = await reader.collect();
  const all = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
  const values = (name) => all
    .filter(({ descriptor }) => descriptor.name === name)
    .flatMap(({ dataPoints }) => dataPoints.map(({ value }) => value.count ?? value));
  const windows = exporter.getFinishedSpans().filter(({ name }) => name === '${SPAN_LLAMA_STAGE_VERIFY_WINDOW}');
  console.log(JSON.stringify({
    schedulers: schedulers.length,
    opened: values('${OPENED}'),
    live: values('${SCHEDULERS}'),
    durations: values('${DURATION}'),
    windows: windows.map((span) => span.spanContext().spanId),
    sent,
  }));
`;

describe('the package as it was built', () => {
  let packed: Packed;
  let bundle: string;
  beforeAll(async () => {
    packed = pack();
    const outDir = join(packed.project, 'bundle');
    await build({
      configFile: false,
      logLevel: 'silent',
      root: packed.project,
      // With a copy of the API of its own, as applications are bundled.
      ssr: { noExternal: true },
      build: { ssr: join(packed.folder, 'dist/src/index.js'), outDir, minify: true },
    });
    bundle = join(outDir, 'index.mjs');
  });
  afterAll(() => rmSync(packed.project, { recursive: true, force: true }));

  test('is bundled with its own copy of the API', () => {
    expect(readFileSync(bundle, 'utf8')).not.toMatch(/from\s*["']@opentelemetry/);
  });

  test('is counted once and traced once with a dependency’s copy and a bundled one', () => {
    const paths = [join(packed.folder, 'dist/src/index.js'), bundle];
    const urls = paths.map((path) => pathToFileURL(path).href);
    const args = ['--input-type=module', '-e', PROGRAM, ...urls];
    const printed = execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
    const { windows, sent, ...counted } = JSON.parse(printed);
    expect(counted).toEqual({ schedulers: 12, opened: [12], live: [12], durations: [12] });
    expect(new Set(windows).size).toBe(12);
    expect(sent).toEqual(windows.flatMap((id: string) => [id, id, id]));
  });
});
