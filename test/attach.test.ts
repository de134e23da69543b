import { channel } from 'node:diagnostics_channel';
import { type Context, context, trace } from '@opentelemetry/api';
import { AlwaysOffSampler } from '@opentelemetry/sdk-trace-base';
import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT,
} from '../semconv/index.js';
import {
  GenerationTelemetry,
  PipelineTelemetry,
  SCHEDULER_CHANNEL,
  VerifyWindowScheduler,
  windowContext,
} from '../src/index.js';
import type { VerifyWindowInstrumentationOptions } from '../src/instrumentation.js';
import { newCopy } from './copy.js';
import { cleanUp, Host, instrumentations, schedulers, verify } from './host.js';
import {
  type Collected,
  counterValues,
  expectNoneFell,
  expectOnePointForEachSeries,
} from './metrics/collected.js';
import { hostileValues } from './tracing/hostile-values.js';
import { listenToDiag, Tracing, useApi } from './tracing/sdk.js';

const OPENED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const COMPLETED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED;
const DURATION = METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION;
const OCCUPANCY_TIME = METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME;
const IN_FLIGHT = METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT;
const SCHEDULERS = METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT;
const GAUGES = [IN_FLIGHT, METRIC_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY, SCHEDULERS];

useApi();

afterEach(cleanUp);

describe('a scheduler is counted once and traced once', () => {
  interface Maker {
    readonly name: string;
    readonly does: ('count' | 'trace')[];
    make(host: Host): VerifyWindowScheduler;
  }
  const makers: Maker[] = [
    {
      name: 'the host itself',
      does: [],
      make: () => new VerifyWindowScheduler({ depth: 4 }),
    },
    {
      name: 'a generation telemetry',
      does: ['trace'],
      make: ({ tracerProvider }) =>
        new GenerationTelemetry({ tracerProvider }).start({ depth: 4 }).scheduler,
    },
    {
      name: 'a generation telemetry with a bridge',
      does: ['count', 'trace'],
      make: (host) =>
        new GenerationTelemetry({ ...host, metrics: host.bridge() }).start({ depth: 4 }).scheduler,
    },
    {
      name: 'a pipeline telemetry',
      does: ['count', 'trace'],
      make: (host) => new PipelineTelemetry({ ...host }).generation({ depth: 4 }).start().scheduler,
    },
  ];

  interface Observer {
    readonly name: string;
    readonly does: ('count' | 'trace')[];
    observe(host: Host, scheduler: VerifyWindowScheduler): void;
  }
  const kinds: Observer[] = [
    {
      name: 'bridge',
      does: ['count'],
      observe: (host, scheduler) => host.bridge().observe(scheduler),
    },
    {
      name: 'tracer',
      does: ['trace'],
      observe: (host, scheduler) => void host.tracer().observe(scheduler),
    },
    {
      name: 'pipeline telemetry',
      does: ['count', 'trace'],
      observe: (host, scheduler) => new PipelineTelemetry({ ...host }).observe(scheduler),
    },
    {
      name: 'instrumentation',
      does: ['count', 'trace'],
      observe: (host) => host.instrumentation({ requireParentSpan: false }).enable(),
    },
  ];

  test('in whatever order those come that observe it, and whoever makes it', async () => {
    const maker = fc.constantFrom(...makers);
    const instrumented = fc.nat(2);
    const order = fc.array(fc.constantFrom(...kinds), { maxLength: 6 });
    await fc.assert(
      fc
        .asyncProperty(
          maker,
          instrumented,
          order,
          async ({ make, ...maker }, before, observers) => {
            const host = new Host();
            for (let index = 0; index < before; index++) host.instrumentation().enable();
            const inside = host.generation();
            const scheduler = host.scheduler(inside, () => make(host));
            context.with(inside, () => {
              for (const { observe } of observers) observe(host, scheduler);
            });
            verify(scheduler, 3);
            scheduler.close();
            const done = [maker, ...observers].flatMap(({ does }) => does);
            const windowsIf = (isDone: boolean) => (isDone || before > 0 ? 3 : 0);
            const collected = await host.reader.read();
            expectOnePointForEachSeries(collected);
            expect(collected.sum(OPENED)).toBe(windowsIf(done.includes('count')));
            expect(collected.count(DURATION)).toBe(windowsIf(done.includes('count')));
            expect(host.windows).toHaveLength(windowsIf(done.includes('trace')));
            expect(new Set(host.windows).size).toBe(host.windows.length);
          },
        )
        .afterEach(cleanUp),
    );
  });
});

describe('explicit attachment goes before discovery', () => {
  test.each([
    ['that found the scheduler before', true],
    ['that is enabled after it', false],
  ])('of an instrumentation %s', async (_, isBefore) => {
    const host = new Host();
    const instrumentation = host.instrumentation({ metricAttributes: () => ({ by: 'found' }) });
    if (isBefore) instrumentation.enable();
    const scheduler = host.scheduler();
    host.bridge().observe(scheduler, { by: 'given' });
    if (!isBefore) instrumentation.enable();
    verify(scheduler, 2);
    const collected = await host.reader.read();
    expect(collected.sum(OPENED, { by: 'given' })).toBe(2);
    expect(collected.sum(OPENED)).toBe(2);
    expect(collected.sum(SCHEDULERS)).toBe(1);
  });

  test('and goes on from what the instrumentation has exported', async () => {
    const host = new Host();
    host.instrumentation({ metricAttributes: () => ({ by: 'found' }) }).enable();
    const scheduler = host.scheduler();
    verify(scheduler, 2);
    await host.reader.read();
    host.bridge().observe(scheduler, { by: 'given' });
    verify(scheduler, 3);
    const collected = await host.reader.read();
    expect(['found', 'given'].map((by) => collected.sum(OPENED, { by }))).toEqual([2, 3]);
  });

  test('for the spans of the windows that are opened from then on', () => {
    const host = new Host();
    host.instrumentation().enable();
    const [found, given] = [host.generation(), host.generation()];
    const scheduler = host.scheduler(found);
    scheduler.open(0, 0);
    host.tracer().observe(scheduler, given);
    scheduler.open(1, 1);
    scheduler.close();
    const ids = [found, given].map((parent) => trace.getSpanContext(parent)?.traceId);
    expect(host.windows).toEqual([`${ids[0]} 1`, `${ids[1]} 2`]);
  });

  test('where it stands still, and gives way to explicit attachment that does not', async () => {
    const host = new Host();
    const scheduler = host.scheduler();
    const disabled = host.bridge();
    disabled.observe(scheduler, { by: 'disabled' });
    verify(scheduler);
    disabled.disable();
    host.instrumentation({ metricAttributes: () => ({ by: 'found' }) }).enable();
    verify(scheduler);
    host.bridge().observe(scheduler, { by: 'other' });
    verify(scheduler);
    const collected = await host.reader.read();
    expect(['disabled', 'found', 'other'].map((by) => collected.sum(OPENED, { by }))).toEqual([
      1, 0, 1,
    ]);
  });
});

describe('options that lose', () => {
  /** In a copy of the package that has not warned of anything yet. */
  async function setUp() {
    const copy = await newCopy();
    const host = new Host();
    const warn = listenToDiag('warn');
    const scheduler = new copy.VerifyWindowScheduler({ depth: 4 });
    schedulers.push(scheduler);
    const bridge = ({ meterProvider } = host) => new copy.VerifyWindowMetrics({ meterProvider });
    const tracer = (options = {}) =>
      new copy.VerifyWindowTracer({ tracerProvider: host.tracerProvider, ...options });
    const instrument = (options: VerifyWindowInstrumentationOptions) => {
      const instrumentation = new copy.VerifyWindowInstrumentation({ ...options, enabled: false });
      instrumentation.setMeterProvider(host.meterProvider);
      instrumentations.push(instrumentation);
      instrumentation.enable();
    };
    return { host, warn, scheduler, bridge, tracer, instrument };
  }

  test('of a bridge that comes later are told, once', async () => {
    const { warn, scheduler, bridge } = await setUp();
    bridge().observe(scheduler, { by: 'a' });
    bridge().observe(scheduler, { by: 'b' });
    bridge().observe(scheduler, { by: 'c' });
    expect(warn.mock.calls).toEqual([
      [expect.stringMatching(/owner of its counting already: .* who observed it later/)],
    ]);
  });

  test('of a bridge of another meter provider are told', async () => {
    const { warn, scheduler, bridge } = await setUp();
    bridge().observe(scheduler);
    bridge(new Host()).observe(scheduler);
    expect(warn).toHaveBeenCalledTimes(1);
  });

  test('of an instrumentation are told', async () => {
    const { warn, scheduler, bridge, instrument } = await setUp();
    bridge().observe(scheduler, { by: 'a' });
    instrument({ metricAttributes: () => ({ by: 'b' }) });
    expect(warn.mock.calls).toEqual([
      [expect.stringMatching(/owner of its counting already: .* the instrumentation/)],
    ]);
  });

  test.each([
    ['a limit', { maxWindowSpans: 7 }],
    ['a hook', { onWindowSpan: () => {} }],
    ['a provider', { tracerProvider: new Tracing().provider }],
  ])('of a tracer with %s of its own are told', async (_, options) => {
    const { host, warn, scheduler, tracer } = await setUp();
    const parent = host.generation();
    tracer().observe(scheduler, parent);
    tracer(options).observe(scheduler, parent);
    expect(warn.mock.calls).toEqual([[expect.stringMatching(/owner of its tracing already/)]]);
  });

  test('are not told where they are the same', async () => {
    const { host, warn, scheduler, bridge, tracer, instrument } = await setUp();
    const parent = host.generation();
    for (let times = 0; times < 2; times++) {
      bridge().observe(scheduler, { a: 1, b: 'b' });
      bridge().observe(scheduler, { b: 'b', a: 1 });
      tracer().observe(scheduler, parent);
      instrument({ metricAttributes: () => ({ a: 1, b: 'b' }) });
    }
    expect(warn).not.toHaveBeenCalled();
  });
});

describe('what is left', () => {
  /** A scheduler with a window in flight, counted by an instrumentation. */
  function setUp() {
    const host = new Host();
    const instrumentation = host.instrumentation();
    instrumentation.enable();
    const scheduler = host.scheduler();
    verify(scheduler, 2);
    scheduler.open(0, 0);
    return { host, instrumentation, scheduler };
  }

  test.each<[string, (left: ReturnType<typeof setUp>) => void]>([
    ['by disabling', ({ instrumentation }) => instrumentation.disable()],
    [
      'for another meter provider',
      ({ instrumentation }) => instrumentation.setMeterProvider(new Host().meterProvider),
    ],
  ])('%s has its up-down counters at 0, and holds its counters', async (_, leave) => {
    const left = setUp();
    const before = await left.host.reader.read();
    expect(GAUGES.map((name) => before.sum(name))).toEqual([1, 4, 1]);
    leave(left);
    left.scheduler.open(0, 0);
    left.scheduler.close();
    const after = await left.host.reader.read();
    expect(GAUGES.map((name) => after.sum(name))).toEqual([0, 0, 0]);
    expect(after.sum(OPENED)).toBe(3);
    expect(after.sum(COMPLETED)).toBe(2);
    expectNoneFell(counterValues(after), counterValues(before));
    expect((await left.host.reader.read()).sum(OPENED)).toBe(3);
  });

  test('is taken up again with everything that happened meanwhile', async () => {
    const { host, instrumentation, scheduler } = setUp();
    const elsewhere = new Host();
    instrumentation.setMeterProvider(elsewhere.meterProvider);
    scheduler.open(0, 0);
    scheduler.close();
    expect((await elsewhere.reader.read()).sum(OPENED)).toBe(4);
    instrumentation.setMeterProvider(host.meterProvider);
    expect((await host.reader.read()).sum(OPENED)).toBe(4);
  });

  test('reports no windows to a delta reader while nothing happens', async () => {
    const { host, instrumentation } = setUp();
    host.bridge().observe(host.scheduler());
    const read = async () => (await host.delta.read()).sum(OPENED);
    const read3 = [await read(), await read(), await read()];
    instrumentation.disable();
    const disabled = [await read(), await read()];
    instrumentation.enable();
    const enabled = [await read(), await read()];
    expect([read3, disabled, enabled]).toEqual([
      [3, 0, 0],
      [0, 0],
      [0, 0],
    ]);
  });
});

describe('what is no scheduler', () => {
  const messages = [
    ...hostileValues,
    { name: 'a number', make: () => 7 },
    { name: 'an empty object', make: () => ({}) },
    {
      name: 'an object whose scheduler is a getter that throws',
      make: () => ({
        get scheduler() {
          throw new Error('getter');
        },
      }),
    },
    ...hostileValues.map(({ name, make }) => ({
      name: `an object whose scheduler is ${name}`,
      make: () => ({ scheduler: make() }),
    })),
  ];

  test.each(messages)('but $name on the channel ends nothing', async ({ make }) => {
    const host = new Host();
    host.instrumentation().enable();
    const uncaught = vi.fn();
    process.on('uncaughtException', uncaught);
    channel(SCHEDULER_CHANNEL).publish(make());
    verify(host.scheduler());
    // The channel throws what its subscribers throw in the next tick.
    await new Promise(setImmediate);
    process.off('uncaughtException', uncaught);
    expect(uncaught).not.toHaveBeenCalled();
    expect((await host.reader.read()).sum(OPENED)).toBe(1);
    expect(host.windows).toHaveLength(1);
  });

  test.each(hostileValues)(
    'but $name is not observed, and one that is good is',
    async ({ make }) => {
      const host = new Host();
      const { meterProvider, tracerProvider } = host;
      const [bridge, tracer] = [host.bridge(), host.tracer()];
      const telemetry = new PipelineTelemetry({ meterProvider, tracerProvider });
      const parent = host.generation();
      const bad = make() as VerifyWindowScheduler;
      expect(() => {
        bridge.observe(bad, { by: 'bad' });
        tracer.observe(bad, parent);
        telemetry.observe(bad);
      }).not.toThrow();
      const scheduler = host.scheduler(parent);
      bridge.observe(scheduler, { by: 'good' });
      tracer.observe(scheduler, parent);
      verify(scheduler);
      const collected = await host.reader.read();
      expect(collected.sum(OPENED, { by: 'good' })).toBe(1);
      expect(host.windows).toHaveLength(1);
    },
  );
});

describe('the context of a window', () => {
  const samplers: [string, Host][] = [
    ['recorded', new Host()],
    ['not recorded', new Host(new Tracing({ sampler: new AlwaysOffSampler() }))],
  ];
  const attachments: [
    string,
    (host: Host, scheduler: VerifyWindowScheduler, parent: Context) => void,
  ][] = [
    ['a tracer', (host, scheduler, parent) => host.tracer().observe(scheduler, parent)],
    ['an instrumentation', () => {}],
  ];
  const cases = samplers.flatMap(([kind, host]) =>
    attachments.map(([name, attach]) => [kind, name, host, attach] as const),
  );

  test.each(cases)(
    'comes from the parent of its scheduler, which is %s, not from what is active: by %s',
    (kind, name, host, attach) => {
      if (name === 'an instrumentation') host.instrumentation().enable();
      const generations = [host.generation(), host.generation()].map((parent) => {
        const scheduler = host.scheduler(parent);
        attach(host, scheduler, parent);
        return { scheduler, parent, window: scheduler.open(0, 0) };
      });
      // One pump sends the windows of all generations, inside of a span of its own.
      context.with(host.generation(), () => {
        for (const { scheduler, parent, window } of generations) {
          const own = trace.getSpanContext(parent);
          const sent = trace.getSpanContext(windowContext(scheduler, window));
          expect(sent?.traceId).toBe(own?.traceId);
          expect(sent?.traceFlags).toBe(own?.traceFlags);
          expect(sent?.spanId === own?.spanId).toBe(kind === 'not recorded');
          const copied = trace.getSpanContext(windowContext(scheduler, { ...window }));
          expect(copied).toEqual(sent);
        }
      });
    },
  );

  test('is what is active where nobody traces the scheduler', () => {
    const host = new Host();
    const scheduler = host.scheduler();
    const active = host.generation();
    const window = scheduler.open(0, 0);
    expect(context.with(active, () => windowContext(scheduler, window))).toBe(active);
  });
});

describe('an attachment that is taken over', () => {
  /** What each has counted, where each has attributes of its own. */
  const opened = (collected: Collected, ...who: string[]) =>
    who.map((by) => collected.sum(OPENED, { by }));

  test('after the scheduler was closed leaves nothing to count', async () => {
    const host = new Host();
    host.instrumentation().enable();
    const scheduler = host.scheduler();
    verify(scheduler);
    scheduler.close();
    host.bridge().observe(scheduler);
    expect((await host.reader.read()).sum(OPENED)).toBe(1);
  });

  test('twice without a collection in between counts a window in flight once', async () => {
    const host = new Host();
    const first = host.instrumentation({ metricAttributes: () => ({ by: 'X' }) });
    const second = host.instrumentation({ metricAttributes: () => ({ by: 'Y' }) });
    first.enable();
    const scheduler = host.scheduler();
    scheduler.open(0, 0);
    await host.reader.read();
    first.disable();
    second.enable();
    host.bridge().observe(scheduler, { by: 'A' });
    first.enable();
    expect(opened(await host.reader.read(), 'X', 'Y', 'A')).toEqual([1, 0, 0]);
  });

  test('by a bridge that is disabled counts a window in flight once', async () => {
    const host = new Host();
    host.instrumentation().enable();
    const scheduler = host.scheduler();
    scheduler.open(0, 0);
    await host.reader.read();
    const disabled = host.bridge();
    disabled.disable();
    disabled.observe(scheduler);
    host.bridge().observe(scheduler);
    expect((await host.reader.read()).sum(OPENED)).toBe(1);
  });

  test('twice without a collection in between counts its time once', async () => {
    const host = new Host();
    const first = host.instrumentation({ metricAttributes: () => ({ by: 'X' }) });
    const second = host.instrumentation({ metricAttributes: () => ({ by: 'Y' }) });
    first.enable();
    let ms = 0;
    const make = () => new VerifyWindowScheduler({ depth: 1, clock: () => ms });
    const scheduler = host.scheduler(host.generation(), make);
    ms = 5000;
    await host.reader.read();
    first.disable();
    second.enable();
    host.bridge().observe(scheduler, { by: 'A' });
    ms = 6000;
    expect((await host.reader.read()).sum(OCCUPANCY_TIME)).toBe(6);
  });
});
