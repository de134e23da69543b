import { channel } from 'node:diagnostics_channel';
import { metrics, trace } from '@opentelemetry/api';
import { type Instrumentation, registerInstrumentations } from '@opentelemetry/instrumentation';
import type { MeterProvider } from '@opentelemetry/sdk-metrics';
import { AlwaysOffSampler } from '@opentelemetry/sdk-trace-base';
import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID,
  ATTR_OTEL_METRIC_OVERFLOW,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
} from '../semconv/index.js';
import { PreaggregatedHistograms } from '../src/histograms/index.js';
import { SCHEDULER_CHANNEL, VerifyWindowScheduler } from '../src/index.js';
import {
  VerifyWindowInstrumentation,
  type VerifyWindowInstrumentationConfig,
  type VerifyWindowInstrumentationOptions,
} from '../src/instrumentation.js';
import { ManualReader, providerWith } from './metrics/collected.js';
import { listenToDiag, Tracing, useApi } from './tracing/sdk.js';

const OPENED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const DURATION = METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION;

let made: VerifyWindowInstrumentation[] = [];
let schedulers: VerifyWindowScheduler[] = [];

useApi();

afterEach(() => {
  for (const instrumentation of made) instrumentation.disable();
  for (const scheduler of schedulers) scheduler.close();
  made = [];
  schedulers = [];
});

function instrument(options: VerifyWindowInstrumentationOptions = {}) {
  const instrumentation = new VerifyWindowInstrumentation(options);
  made.push(instrumentation);
  return instrumentation;
}

function newScheduler(depth = 4): VerifyWindowScheduler {
  const scheduler = new VerifyWindowScheduler({ depth });
  schedulers.push(scheduler);
  return scheduler;
}

/** Makes a scheduler, inside of a span, and opens and completes one window. */
function generate(tracer = trace.getTracer('host')): VerifyWindowScheduler {
  return tracer.startActiveSpan('generation', (span) => {
    const scheduler = newScheduler();
    scheduler.completeNext(scheduler.open(0, 0).id);
    span.end();
    return scheduler;
  });
}

/** Providers of the real SDK, not registered, and what reached their ends. */
function newSdk(sampler?: AlwaysOffSampler) {
  const tracing = new Tracing(sampler === undefined ? {} : { sampler });
  const reader = new ManualReader();
  const windowSpans = () => tracing.spans('llama_stage.verify_window');
  const tracerProvider = tracing.provider;
  return { tracing, tracerProvider, meterProvider: providerWith(reader), reader, windowSpans };
}

function register({ tracerProvider, meterProvider }: ReturnType<typeof newSdk>): void {
  trace.setGlobalTracerProvider(tracerProvider);
  metrics.setGlobalMeterProvider(meterProvider);
}

describe('as an instrumentation', () => {
  test('it is what the SDK asks for, and says who it is', () => {
    const instrumentation: Instrumentation<VerifyWindowInstrumentationConfig> = instrument();
    expect(instrumentation.instrumentationName).toBe('llama-stage-otel');
    expect(instrumentation.instrumentationVersion).toMatch(/^\d+\.\d+\.\d+$/);
  });

  test('registerInstrumentations hands it providers, enables and disables it', async () => {
    const sdk = newSdk();
    const instrumentation = instrument({ enabled: false });
    generate(sdk.tracerProvider.getTracer('host')).close();
    const unload = registerInstrumentations({
      instrumentations: [instrumentation],
      tracerProvider: sdk.tracerProvider,
      meterProvider: sdk.meterProvider,
    });
    generate(sdk.tracerProvider.getTracer('host'));
    expect((await sdk.reader.read()).sum(OPENED)).toBe(1);
    expect(sdk.windowSpans()).toHaveLength(1);
    unload();
    generate(sdk.tracerProvider.getTracer('host'));
    // A cumulative reader repeats the last value.
    expect((await sdk.reader.read()).sum(OPENED)).toBe(1);
    expect(sdk.windowSpans()).toHaveLength(1);
  });

  test('without an SDK it does nothing, and nothing throws', () => {
    instrument();
    expect(generate().stats().opened).toBe(1);
  });
});

describe('every scheduler of the process', () => {
  test('gets metrics, and window spans below the span that was active when it was made', async () => {
    const sdk = newSdk();
    register(sdk);
    instrument();
    generate();
    generate();
    const collected = await sdk.reader.read();
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.count(DURATION)).toBe(2);
    const parents = sdk.windowSpans().map(({ parentSpanContext }) => parentSpanContext?.spanId);
    const generations = sdk.tracing.spans('generation');
    expect(parents).toEqual(generations.map((span) => span.spanContext().spanId));
  });

  test('makes no span where there is no parent, unless none is required', () => {
    const sdk = newSdk();
    register(sdk);
    const instrumentation = instrument();
    newScheduler().open(0, 0);
    instrumentation.setConfig({ requireParentSpan: false });
    newScheduler().open(7, 0);
    for (const scheduler of schedulers) scheduler.close();
    expect(sdk.windowSpans().map(({ parentSpanContext }) => parentSpanContext)).toEqual([
      undefined,
    ]);
  });

  test('makes no span in a trace that is not sampled, but metrics all the same', async () => {
    const sdk = newSdk(new AlwaysOffSampler());
    register(sdk);
    instrument();
    generate();
    expect(sdk.windowSpans()).toEqual([]);
    expect((await sdk.reader.read()).sum(OPENED)).toBe(1);
  });

  test('is found though it was made before the instrumentation', async () => {
    const sdk = newSdk();
    register(sdk);
    const early = newScheduler();
    early.open(0, 0);
    const ended = newScheduler();
    ended.open(0, 0);
    ended.close();
    instrument();
    early.open(1, 1);
    const collected = await sdk.reader.read();
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.sum(METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT)).toBe(2);
  });

  test('is forgotten by the instrumentation that it waited for in vain', async () => {
    const made = 3000;
    const isThere = (ref: WeakRef<VerifyWindowScheduler>) => ref.deref() !== undefined;
    const refs = Array.from({ length: made }, () => {
      return new WeakRef(new VerifyWindowScheduler({ depth: 1 }));
    });
    // What a WeakRef was made for is kept until the end of the job.
    await new Promise(setImmediate);
    globalThis.gc?.();
    expect(refs.filter(isThere)).toEqual([]);
    const sdk = newSdk();
    register(sdk);
    instrument();
    newScheduler().open(0, 0);
    expect((await sdk.reader.read()).sum(OPENED)).toBe(1);
  });

  test('counts once and has one span a window with two instrumentations', async () => {
    const sdk = newSdk();
    register(sdk);
    newScheduler().open(0, 0);
    instrument();
    instrument();
    generate();
    const collected = await sdk.reader.read();
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.count(DURATION)).toBe(1);
    expect(sdk.windowSpans()).toHaveLength(1);
  });
});

describe('providers', () => {
  test('may be registered after the instrumentation and the schedulers', async () => {
    instrument();
    const scheduler = newScheduler();
    scheduler.open(0, 0);
    const sdk = newSdk();
    register(sdk);
    scheduler.open(1, 1);
    generate();
    expect((await sdk.reader.read()).sum(OPENED)).toBe(3);
    expect(sdk.windowSpans()).toHaveLength(1);
  });

  test('may be given, and given anew', async () => {
    const [first, second] = [newSdk(), newSdk()];
    const instrumentation = instrument();
    for (const { meterProvider, tracerProvider } of [first, second]) {
      instrumentation.setMeterProvider(meterProvider as MeterProvider);
      instrumentation.setTracerProvider(tracerProvider);
      generate(tracerProvider.getTracer('host'));
    }
    expect((await second.reader.read()).sum(OPENED)).toBe(2);
    expect(first.windowSpans()).toHaveLength(1);
    expect(second.windowSpans()).toHaveLength(1);
  });

  test('that are given stay through a change of the configuration', () => {
    const sdk = newSdk();
    const instrumentation = instrument();
    instrumentation.setTracerProvider(sdk.tracerProvider);
    instrumentation.setConfig({ metrics: false });
    generate(sdk.tracerProvider.getTracer('host'));
    expect(sdk.windowSpans()).toHaveLength(1);
  });
});

describe('enable and disable', () => {
  test('in any order keep the metrics true: nothing counts twice, and no counter falls', async () => {
    const steps = fc.array(fc.constantFrom('enable', 'disable', 'open', 'close', 'new', 'read'), {
      maxLength: 30,
      size: 'max',
    });
    await fc.assert(
      fc.asyncProperty(steps, async (sequence) => {
        const sdk = newSdk();
        register(sdk);
        const instrumentation = instrument();
        let isEnabled = true;
        // What the metrics must know: what was ever open while it was enabled.
        const known = new Set<VerifyWindowScheduler>();
        const open = new Set<VerifyWindowScheduler>();
        let last = 0;
        let held = 0;
        const expected = () => [...known].reduce((sum, { tally }) => sum + tally.opened, 0);
        for (const step of [...sequence, 'enable', 'read']) {
          if (step === 'new') {
            const scheduler = newScheduler();
            open.add(scheduler);
            if (isEnabled) known.add(scheduler);
          }
          const [oldest] = open;
          if (step === 'open' && oldest?.hasCapacity) oldest.open(0, 0);
          if (step === 'close' && oldest !== undefined) {
            oldest.close();
            open.delete(oldest);
          }
          if (step === 'enable') {
            instrumentation.enable();
            isEnabled = true;
            for (const scheduler of open) known.add(scheduler);
          }
          if (step === 'disable') {
            if (isEnabled) held = expected();
            instrumentation.disable();
            isEnabled = false;
          }
          if (step === 'read') {
            const collected = await sdk.reader.read();
            if (!isEnabled) {
              // What is disabled stands still, with nothing in flight.
              expect(collected.sum(OPENED)).toBe(held);
              expect(collected.sum(METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT)).toBe(0);
            } else {
              expect(collected.sum(OPENED)).toBe(expected());
              expect(collected.sum(OPENED)).toBeGreaterThanOrEqual(last);
              last = collected.sum(OPENED);
              expect(last).toBe(
                collected.sum(METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED) +
                  collected.sum(METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED) +
                  collected.sum(METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT),
              );
            }
          }
        }
        instrumentation.disable();
        for (const scheduler of open) scheduler.close();
        for (const api of [metrics, trace]) api.disable();
      }),
    );
  });

  test('leave no listener behind', () => {
    const listened = channel(SCHEDULER_CHANNEL);
    const instrumentation = instrument();
    instrumentation.enable();
    expect(listened.hasSubscribers).toBe(true);
    instrumentation.disable();
    instrumentation.disable();
    expect(listened.hasSubscribers).toBe(false);
  });

  test('disabling lets a generation that is traced be traced to its end', () => {
    const sdk = newSdk();
    register(sdk);
    const instrumentation = instrument();
    trace.getTracer('host').startActiveSpan('generation', (span) => {
      const scheduler = newScheduler();
      scheduler.open(0, 0);
      instrumentation.disable();
      scheduler.open(1, 1);
      scheduler.close();
      span.end();
    });
    generate();
    const ids = sdk
      .windowSpans()
      .map(({ attributes }) => attributes[ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID]);
    expect(ids).toEqual([1, 2]);
  });
});

describe('the configuration', () => {
  test('has its defaults', () => {
    expect(instrument().getConfig()).toEqual({ enabled: true, metrics: true, spans: true });
  });

  test('takes what is undefined for its default', async () => {
    const sdk = newSdk();
    register(sdk);
    const config = { metrics: undefined, spans: undefined, maxAttributeSets: undefined };
    instrument(config as unknown as VerifyWindowInstrumentationOptions);
    generate();
    expect((await sdk.reader.read()).sum(OPENED)).toBe(1);
    expect(sdk.windowSpans()).toHaveLength(1);
  });

  test('switches metrics and spans off and on', async () => {
    const sdk = newSdk();
    register(sdk);
    const instrumentation = instrument({ metrics: false });
    generate();
    expect((await sdk.reader.read()).names).toEqual([]);
    expect(sdk.windowSpans()).toHaveLength(1);
    instrumentation.setConfig({ spans: false });
    generate();
    expect((await sdk.reader.read()).sum(OPENED)).toBe(1);
    expect(sdk.windowSpans()).toHaveLength(1);
    instrumentation.setConfig();
    generate();
    expect((await sdk.reader.read()).sum(OPENED)).toBe(2);
    expect(sdk.windowSpans()).toHaveLength(2);
  });

  test('does not switch on what was disabled', async () => {
    const sdk = newSdk();
    register(sdk);
    const instrumentation = instrument({ enabled: false });
    instrumentation.setConfig({ maxAttributeSets: 3 });
    generate();
    expect((await sdk.reader.read()).names).toEqual([]);
    expect(sdk.windowSpans()).toEqual([]);
  });

  test('gives metrics the attributes of the scheduler, up to a bound that may change', async () => {
    const sdk = newSdk();
    register(sdk);
    const metricAttributes = ({ depth }: VerifyWindowScheduler) => ({ depth });
    const instrumentation = instrument({ metricAttributes, maxAttributeSets: 1 });
    const open = (depth: number) => newScheduler(depth).open(0, 0);
    open(1);
    open(2);
    instrumentation.setConfig({ metricAttributes, maxAttributeSets: 2 });
    open(3);
    open(4);
    const collected = await sdk.reader.read();
    const opened = [{ depth: 1 }, { depth: 3 }, { [ATTR_OTEL_METRIC_OVERFLOW]: true }];
    expect(opened.map((attributes) => collected.sum(OPENED, attributes))).toEqual([1, 1, 2]);
  });

  test.each([0, -1, 1.5, Number.NaN, '7'])(
    'refuses %s attribute sets, and changes nothing',
    (bad) => {
      const instrumentation = instrument({ requireParentSpan: false });
      const config = { maxAttributeSets: bad as number };
      expect(() => instrumentation.setConfig(config)).toThrow(
        /maxAttributeSets must be an integer/,
      );
      expect(instrumentation.getConfig()).toMatchObject({ requireParentSpan: false });
      expect(() => new VerifyWindowInstrumentation(config)).toThrow(/maxAttributeSets/);
    },
  );

  test('takes another way to record histograms', async () => {
    const histograms = new PreaggregatedHistograms();
    const reader = new ManualReader({ metricProducers: [histograms.producer()] });
    metrics.setGlobalMeterProvider(providerWith(reader));
    const instrumentation = instrument({ histograms });
    generate();
    instrumentation.disable();
    generate();
    expect((await reader.read()).count(DURATION)).toBe(1);
  });
});

describe('hooks', () => {
  test('add to the window spans', () => {
    const sdk = newSdk();
    register(sdk);
    instrument({
      onWindowSpan: (span, window) => span.setAttribute('host.step', window.decodeStep),
    });
    generate();
    expect(sdk.windowSpans()[0]?.attributes).toMatchObject({ 'host.step': 0 });
  });

  test('that throw are reported once, and reach neither the host nor the telemetry', async () => {
    const error = listenToDiag();
    const sdk = newSdk();
    register(sdk);
    const fail = () => {
      throw new Error('hook');
    };
    const uncaught = vi.fn();
    process.on('uncaughtException', uncaught);
    instrument({ metricAttributes: fail, onWindowSpan: fail });
    generate();
    generate();
    // The channel throws what its subscribers throw in the next tick.
    await new Promise(setImmediate);
    process.off('uncaughtException', uncaught);
    expect(uncaught).not.toHaveBeenCalled();
    expect((await sdk.reader.read()).sum(OPENED)).toBe(2);
    expect(sdk.windowSpans()).toHaveLength(2);
    expect(error).toHaveBeenCalledTimes(2);
  });
});
