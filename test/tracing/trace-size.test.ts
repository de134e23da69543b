import { context, type HrTime, SpanStatusCode, trace } from '@opentelemetry/api';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import * as ATTRIBUTES from '../../semconv/attributes.js';
import {
  METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
  METRIC_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
  METRIC_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
} from '../../semconv/metrics.js';
import {
  EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import {
  GenerationTelemetry,
  injectTraceContext,
  StageTelemetry,
  type StageTelemetryOptions,
  VerifyWindowScheduler,
  VerifyWindowTracer,
  windowContext,
} from '../../src/index.js';
import { ManualReader, providerWith } from '../metrics/collected.js';
import { type Operation, operations, perform } from '../scheduler/operations.js';
import { Recorder } from '../scheduler/recorder.js';
import { isParent, listenToDiag, nanoseconds, Tracing, useApi } from './sdk.js';

const GENERATION = SPAN_LLAMA_STAGE_GENERATION;
const WINDOW = SPAN_LLAMA_STAGE_VERIFY_WINDOW;
const STAGE = SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW;
const ID = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID;
const INDEX = ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_INDEX;
const OMITTED = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_WINDOWS_OMITTED;
const MARKED = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED;

const PHASES = [
  [
    'compute',
    ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_COMPUTE_MS,
    METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
  ],
  [
    'forwardWrite',
    ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_FORWARD_WRITE_MS,
    METRIC_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
  ],
  [
    'downstreamWait',
    ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_MS,
    METRIC_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
  ],
] as const;

useApi();

/** Moves what the telemetry reads the time from. */
function useTime() {
  let passedMs = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => passedMs);
  return { pass: (ms: number) => (passedMs += ms) };
}

function idsOf(spans: readonly ReadableSpan[]) {
  return spans.map(({ attributes }) => attributes[ID]);
}

describe('a pipeline of four stages', () => {
  /** Sends windows through all stages: each computes, all but the last write, the first waits. */
  async function runPipeline(phases: 'spans' | 'attributes' | undefined, windows: number) {
    const tracing = new Tracing();
    const tracerProvider = tracing.provider;
    const generations = new GenerationTelemetry({ tracerProvider });
    const stages = [0, 1, 2, 3].map(
      (index) =>
        new StageTelemetry({ index, tracerProvider, ...(phases !== undefined && { phases }) }),
    );
    const pass = (carrier: unknown, index: number): void => {
      stages[index]?.window(carrier, (window) => {
        window.compute(() => {});
        if (index === 3) return;
        window.forwardWrite(() => {});
        if (index > 0) pass(window.carrier, index + 1);
        else window.downstreamWait(() => pass(window.carrier, 1));
      });
    };
    await generations.run({ depth: 1 }, ({ scheduler }) => {
      for (let i = 0; i < windows; i++) {
        const window = scheduler.open(i, i);
        pass(injectTraceContext(windowContext(scheduler, window)), 0);
        scheduler.completeNext(window.id);
      }
    });
    return tracing;
  }

  test.each([
    ['spans', 13],
    ['attributes', 5],
    [undefined, 13],
  ] as const)('with phases as %s has %i spans for each window', async (phases, each) => {
    const tracing = await runPipeline(phases, 7);
    expect(tracing.spans()).toHaveLength(1 + 7 * each);
    expect(tracing.spans(WINDOW)).toHaveLength(7);
    expect(tracing.spans(STAGE)).toHaveLength(7 * 4);
  });

  test('has the spans of its stages in place in the compact form, too', async () => {
    const tracing = await runPipeline('attributes', 3);
    for (const window of tracing.spans(WINDOW)) {
      const stages = tracing.spans(STAGE).filter((stage) => isParent(window, stage));
      expect(stages.map(({ attributes }) => attributes[INDEX]).toSorted()).toEqual([0, 1, 2, 3]);
    }
    const last = tracing.spans(STAGE).find(({ attributes }) => attributes[INDEX] === 3);
    expect(Object.keys(last?.attributes ?? {})).toEqual([INDEX, PHASES[0][1]]);
  });
});

describe('the compact form', () => {
  const CARRIER = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` };

  function setUp() {
    const tracing = new Tracing();
    const reader = new ManualReader();
    const stage = new StageTelemetry({
      index: 1,
      phases: 'attributes',
      tracerProvider: tracing.provider,
      meterProvider: providerWith(reader),
    });
    return { tracing, reader, stage };
  }

  test('has the milliseconds of each phase on the window, and the same histograms', async () => {
    const { tracing, reader, stage } = setUp();
    const { pass } = useTime();
    stage.window(CARRIER, (window) => {
      for (const [index, [phase]] of PHASES.entries()) window[phase](() => pass(2 ** index));
    });
    expect(tracing.spans()).toHaveLength(1);
    const { attributes } = tracing.span(STAGE);
    const collected = await reader.read();
    for (const [index, [, attribute, metric]] of PHASES.entries()) {
      expect(attributes[attribute]).toBe(2 ** index);
      const [point] = collected.histogram(metric);
      expect(point?.attributes).toEqual({ [INDEX]: 1 });
      expect(point?.value).toMatchObject({ count: 1, sum: 2 ** index / 1000 });
    }
  });

  test('adds up a phase that comes several times, and leaves out one that does not', () => {
    const { tracing, stage } = setUp();
    const { pass } = useTime();
    stage.window(CARRIER, ({ compute }) => {
      compute(() => pass(3));
      compute(() => pass(4));
    });
    expect(tracing.span(STAGE).attributes).toEqual({ [INDEX]: 1, [PHASES[0][1]]: 7 });
  });

  test('has the time of a phase that failed, and of one that its window cut short', async () => {
    const { tracing, stage } = setUp();
    const { pass } = useTime();
    const window = stage.startWindow(CARRIER);
    const fail = () => {
      pass(3);
      throw new RangeError('secret');
    };
    expect(() => window.compute(fail)).toThrow(RangeError);
    void window.downstreamWait(() => new Promise(() => {}));
    pass(5);
    window.end();
    expect(tracing.span(STAGE).attributes).toEqual({
      [INDEX]: 1,
      [PHASES[0][1]]: 3,
      [PHASES[2][1]]: 5,
    });
    expect(tracing.span(STAGE).status).toEqual({ code: SpanStatusCode.UNSET });
  });

  test('runs a phase with the window’s span active', () => {
    const { tracing, stage } = setUp();
    stage.window(CARRIER, ({ compute }) => {
      compute(() => tracing.tracer.startSpan('of the host').end());
    });
    expect(isParent(tracing.span(STAGE), tracing.span('of the host'))).toBe(true);
  });

  test.each(['span', '', null, true, 1])('is not to be had by the name of %j', (phases) => {
    const options = { index: 1, phases } as unknown as StageTelemetryOptions;
    expect(() => new StageTelemetry(options)).toThrow(
      expect.objectContaining({
        code: 'invalid_argument',
        message: expect.stringContaining("phases must be 'spans' or 'attributes'"),
      }),
    );
  });
});

/** A generation with a limit on its window spans, under a clock that the test moves. */
function setUpLimited(maxWindowSpans: number, depth = 4) {
  const tracing = new Tracing();
  const clock = { ms: 0 };
  const tracerProvider = tracing.provider;
  const generations = new GenerationTelemetry({ tracerProvider, maxWindowSpans });
  const generation = generations.start({ depth, clock: () => clock.ms });
  const { scheduler } = generation;
  /** Sends one window, and takes its reply so much later. */
  const send = (tookMs: number, isStale = false) => {
    const { id } = scheduler.open(0, 0);
    clock.ms += tookMs;
    scheduler.completeNext(id, isStale ? { stale: true } : undefined);
    return id;
  };
  /** The ids of the windows that have spans, and how many there are said to be without. */
  const end = () => {
    generation.end();
    const omitted = tracing.span(GENERATION).attributes[OMITTED];
    return { ids: idsOf(tracing.spans(WINDOW)), omitted };
  };
  return { tracing, clock, generation, scheduler, send, end };
}

describe('a limit on window spans', () => {
  test('keeps the first ones, and says how many others there were', () => {
    const { send, end } = setUpLimited(3);
    for (let i = 0; i < 10; i++) send(5);
    expect(end()).toEqual({ ids: [1, 2, 3], omitted: 7 });
  });

  test('that is not reached leaves no word', () => {
    const { send, end } = setUpLimited(3);
    for (let i = 0; i < 3; i++) send(5);
    expect(end()).toEqual({ ids: [1, 2, 3], omitted: undefined });
  });

  test('is 1000 by default', () => {
    const tracing = new Tracing();
    const { scheduler, end } = new GenerationTelemetry({
      tracerProvider: tracing.provider,
    }).start({ depth: 1, clock: () => 0 });
    for (let i = 0; i < 1001; i++) scheduler.completeNext(scheduler.open(0, 0).id);
    end();
    expect(tracing.spans(WINDOW)).toHaveLength(1000);
    expect(tracing.span(GENERATION).attributes[OMITTED]).toBe(1);
  });

  test('of none leaves no span at all, also of those that stand out', () => {
    const { send, scheduler, end } = setUpLimited(0);
    send(1);
    send(100);
    scheduler.markRecoveryEpoch(1);
    send(1, true);
    expect(end()).toEqual({ ids: [], omitted: 3 });
  });

  test('keeps those that took more than twice the average of all before', () => {
    const { send, end } = setUpLimited(2);
    for (const tookMs of [10, 10, 20, 21, 100]) send(tookMs);
    // The average is 10 before the third and 13.3 before the fourth.
    expect(end()).toEqual({ ids: [1, 2, 5], omitted: 2 });
  });

  test.each<[string, (scheduler: VerifyWindowScheduler, send: () => void) => void]>([
    ['is drained', (_, send) => send()],
    [
      'is discarded',
      (scheduler) => {
        scheduler.open(0, 0);
        scheduler.discardStale();
      },
    ],
  ])('keeps the first stale one of each recovery epoch that %s', (_, retire) => {
    const { send, scheduler, end } = setUpLimited(2);
    for (let i = 0; i < 3; i++) send(5);
    const ids = [1, 2];
    for (let epoch = 0; epoch < 2; epoch++) {
      scheduler.markRecoveryEpoch(2);
      retire(scheduler, () => send(5, true));
      ids.push(scheduler.tally.opened);
      retire(scheduler, () => send(5, true));
    }
    expect(end()).toEqual({ ids, omitted: 3 });
  });

  test('keeps no stale one without a recovery epoch', () => {
    const { send, end } = setUpLimited(1);
    for (let i = 0; i < 3; i++) send(5, true);
    expect(end()).toEqual({ ids: [1], omitted: 2 });
  });

  test('holds for those that stand out, too', () => {
    const { send, scheduler, end } = setUpLimited(2);
    for (let i = 0; i < 3; i++) send(5);
    for (let i = 0; i < 4; i++) {
      scheduler.markRecoveryEpoch(1);
      send(5, true);
    }
    expect(end()).toEqual({ ids: [1, 2, 4, 5], omitted: 3 });
  });

  test('counts those that are open at the end', () => {
    const { scheduler, end } = setUpLimited(1);
    for (let i = 0; i < 4; i++) scheduler.open(i, i);
    expect(end()).toEqual({ ids: [1], omitted: 3 });
  });

  test('gives a late span the times and the figures of its window', () => {
    const { tracing, send, scheduler, clock, end } = setUpLimited(1);
    const { pass } = useTime();
    send(5);
    scheduler.open(16, 3);
    const { id } = scheduler.open(24, 3);
    pass(50);
    clock.ms += 50;
    scheduler.completeNext(id - 1, { proposedTokens: 8, acceptedTokens: 5 });
    end();
    const [, late] = tracing.spans(WINDOW) as [ReadableSpan, ReadableSpan];
    const lastedMs = Number(nanoseconds(late.endTime) - nanoseconds(late.startTime)) / 1e6;
    expect(lastedMs).toBeCloseTo(50, 2);
    expect(late.attributes).toMatchObject({
      [ID]: 2,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION]: 16,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DECODE_STEP]: 3,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT]: 1,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER]: 1,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT]: 'partial_accept',
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS]: 5,
    });
    expect(isParent(tracing.span(GENERATION), late)).toBe(true);
  });

  test('tells the stages that a window past it is not sampled, in the same trace', () => {
    const { tracing, scheduler, generation, end } = setUpLimited(1);
    const stage = new StageTelemetry({ index: 0, tracerProvider: tracing.provider });
    for (let i = 0; i < 2; i++) {
      const carrier = injectTraceContext(windowContext(scheduler, scheduler.open(i, i)));
      expect(carrier.traceparent).toContain(generation.span.spanContext().traceId);
      expect(carrier.traceparent).toMatch(i === 0 ? /-01$/ : /-00$/);
      stage.window(carrier, ({ compute }) => compute(() => {}));
    }
    end();
    expect(tracing.spans(STAGE)).toHaveLength(1);
  });

  test.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, '7', null])(
    'cannot be %s',
    (maxWindowSpans) => {
      const options = { maxWindowSpans: maxWindowSpans as number };
      for (const make of [
        () => new GenerationTelemetry(options),
        () => new VerifyWindowTracer(options),
      ]) {
        expect(make).toThrow(/maxWindowSpans must be an integer of at least 0/);
      }
    },
  );

  test('keeps one stale window of an epoch, also where that is slow', () => {
    const { send, scheduler, end } = setUpLimited(2);
    for (let i = 0; i < 3; i++) send(5);
    scheduler.markRecoveryEpoch(2);
    send(100, true);
    send(5, true);
    expect(end()).toEqual({ ids: [1, 2, 4], omitted: 2 });
  });
});

describe('whatever happens under a limit', () => {
  const depths = fc.integer({ min: 1, max: 5 });
  const limits = fc.integer({ min: 0, max: 8 });

  function runOperations(maxWindowSpans: number, depth: number, calls: readonly Operation[]) {
    const { tracing, clock, scheduler, end } = setUpLimited(maxWindowSpans, depth);
    const recorder = new Recorder();
    scheduler.subscribe(recorder);
    for (const operation of calls) {
      if (operation.name === 'clock') clock.ms += operation.stepMs;
      const { opened, inFlight } = scheduler.tally;
      try {
        perform(scheduler, operation, opened - inFlight + 1);
      } catch {
        // A refused call; that it changes nothing is tested elsewhere.
      }
    }
    const { ids, omitted = 0 } = end();
    return { tracing, recorder, ids: ids as number[], omitted: omitted as number };
  }

  /** The ids of the windows that are to have spans, by what an observer heard. */
  function expectedIds(maxWindowSpans: number, { events }: Recorder) {
    const expected: number[] = [];
    const durations: number[] = [];
    let [isAtEdge, isSlowEdge, late] = [false, false, 0];
    for (const event of events) {
      if (event[0] === 'recoveryEpoch') isAtEdge = true;
      if (event[0] !== 'completed' && event[0] !== 'dropped') continue;
      const [kind, { id }, how] = event;
      const isEdge = how === 'stale' && isAtEdge;
      if (isEdge) isAtEdge = false;
      let isSlow = false;
      if (kind === 'completed') {
        const averageMs = durations.reduce((sum, ms) => sum + ms, 0) / durations.length;
        isSlow = event[3] > 2 * averageMs;
        durations.push(event[3]);
      }
      isSlowEdge ||= isSlow && isEdge;
      if (id <= maxWindowSpans) {
        expected.push(id);
      } else if ((isSlow || isEdge) && late < maxWindowSpans) {
        expected.push(id);
        late++;
      }
    }
    return { expected, isSlowEdge };
  }

  test('each window has a span or is counted as omitted, and none is both', () => {
    fc.assert(
      fc.property(limits, depths, operations(), (maxWindowSpans, depth, calls) => {
        const { recorder, ids, omitted } = runOperations(maxWindowSpans, depth, calls);
        const opened = recorder.events.filter(([kind]) => kind === 'opened').length;
        expect(ids.length + omitted).toBe(opened);
        expect(new Set(ids).size).toBe(ids.length);
        expect(ids.length).toBeLessThanOrEqual(2 * maxWindowSpans);
        const first = Array.from({ length: Math.min(opened, maxWindowSpans) }, (_, i) => i + 1);
        expect(ids).toEqual(expect.arrayContaining(first));
      }),
      { numRuns: 300 },
    );
  });

  test('the spans are those of the first windows, of slow ones and of those at an edge', () => {
    fc.assert(
      fc.property(limits, depths, operations(), (maxWindowSpans, depth, calls) => {
        const { recorder, ids } = runOperations(maxWindowSpans, depth, calls);
        const { expected } = expectedIds(maxWindowSpans, recorder);
        expect(ids).toEqual(expected);
      }),
      { numRuns: 300 },
    );
  });
});

describe('the recovery epochs of a long generation', () => {
  /** Begins so many epochs, each with its number as the count of its stale windows. */
  function runEpochs(epochs: number, tracing = new Tracing()) {
    const { scheduler, end } = new GenerationTelemetry({
      tracerProvider: tracing.provider,
    }).start({ depth: 1, clock: () => 0 });
    for (let i = 0; i < epochs; i++) scheduler.markRecoveryEpoch(i);
    end();
    return tracing.span(GENERATION);
  }

  const numbersOf = ({ events }: ReadableSpan) =>
    events.map(({ attributes }) => attributes?.[MARKED] as number);

  test('are all events where there is room for them', () => {
    fc.assert(
      fc.property(fc.nat(127), (epochs) => {
        expect(numbersOf(runEpochs(epochs))).toEqual(Array.from({ length: epochs }, (_, i) => i));
      }),
      { numRuns: 20 },
    );
  });

  test('are thinned out where there is none: the first 64, the last, some between', () => {
    const complain = listenToDiag('warn');
    fc.assert(
      fc.property(fc.integer({ min: 128, max: 5000 }), (epochs) => {
        const span = runEpochs(epochs);
        const numbers = numbersOf(span);
        expect(span.droppedEventsCount).toBe(0);
        expect(numbers.length).toBeLessThanOrEqual(128);
        expect(numbers.slice(0, 64)).toEqual(Array.from({ length: 64 }, (_, i) => i));
        expect(numbers.at(-1)).toBe(epochs - 1);
        // Those between are at even distances, and half of the room for them at least is used.
        const between = numbers.slice(64, -1);
        const distance = (between[1] ?? 0) - (between[0] ?? 0);
        expect(between).toEqual(between.map((_, index) => 64 + index * distance));
        expect(between.length).toBeGreaterThanOrEqual(31);
        expect(epochs - 1 - (between.at(-1) ?? 0)).toBeLessThanOrEqual(distance);
        expect(span.attributes).toMatchObject({
          [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS]: epochs,
        });
        expect(complain).not.toHaveBeenCalled();
      }),
      { numRuns: 40 },
    );
  });

  test('have the names and the times of when they began, in order', () => {
    const { pass } = useTime();
    // It stands, so that no time of the test's own goes by between the first readings of it.
    vi.spyOn(Date, 'now').mockReturnValue(1_700_000_000_000);
    const tracing = new Tracing();
    const { scheduler, end } = new GenerationTelemetry({
      tracerProvider: tracing.provider,
    }).start({ depth: 1 });
    for (let i = 0; i < 500; i++) {
      pass(10);
      scheduler.markRecoveryEpoch(i);
    }
    pass(1000);
    end();
    const span = tracing.span(GENERATION);
    const sinceStart = (time: HrTime) =>
      Number(nanoseconds(time) - nanoseconds(span.startTime)) / 1e6;
    for (const { name, time, attributes } of span.events) {
      expect(name).toBe(EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH);
      // To the millisecond, as the span itself starts at a whole one.
      const late = sinceStart(time) - 10 * (Number(attributes?.[MARKED]) + 1);
      expect(late >= 0 && late <= 1).toBe(true);
    }
    const numbers = numbersOf(span);
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  });

  test('are on a span of the host’s in the same way', () => {
    const tracing = new Tracing();
    const generation = tracing.tracer.startSpan('generation');
    const scheduler = new VerifyWindowScheduler({ depth: 1 });
    const parent = trace.setSpan(context.active(), generation);
    new VerifyWindowTracer({ tracerProvider: tracing.provider }).observe(scheduler, parent);
    for (let i = 0; i < 64; i++) scheduler.markRecoveryEpoch(i);
    // The first ones are there at once, and not lost with a process that ends.
    expect((generation as unknown as ReadableSpan).events).toHaveLength(64);
    for (let i = 64; i < 1000; i++) scheduler.markRecoveryEpoch(i);
    scheduler.close();
    generation.end();
    const span = tracing.span('generation');
    expect(span.droppedEventsCount).toBe(0);
    expect(numbersOf(span).at(-1)).toBe(999);
  });

  test('fill no more than what the SDK keeps of a span by default', () => {
    const tracing = new Tracing();
    const span = tracing.tracer.startSpan('full');
    for (let i = 0; i < 129; i++) span.addEvent('event');
    span.end();
    expect(tracing.span('full').events).toHaveLength(128);
    expect(tracing.span('full').droppedEventsCount).toBe(1);
  });
});
