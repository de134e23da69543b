import { setImmediate } from 'node:timers/promises';
import { context, SpanStatusCode, trace } from '@opentelemetry/api';
import { AlwaysOffSampler } from '@opentelemetry/sdk-trace-base';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import * as ATTRIBUTES from '../../semconv/attributes.js';
import * as METRICS from '../../semconv/metrics.js';
import {
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_STAGE_COMPUTE,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import {
  type Generation,
  GenerationTelemetry,
  type GenerationTelemetryOptions,
  injectTraceContext,
  StageTelemetry,
  type StageTelemetryOptions,
  type StartedStageWindow,
  VerifyWindowMetrics,
  type VerifyWindowScheduler,
} from '../../src/index.js';
import { ManualReader, providerWith } from '../metrics/collected.js';
import { hostileValues } from './hostile-values.js';
import { isParent, listenToDiag, nanoseconds, Tracing, useApi } from './sdk.js';

const GENERATION = SPAN_LLAMA_STAGE_GENERATION;
const WINDOW = SPAN_LLAMA_STAGE_VERIFY_WINDOW;
const STAGE = SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW;
const COMPUTE = SPAN_LLAMA_STAGE_STAGE_COMPUTE;
const OUTCOME = ATTRIBUTES.ATTR_LLAMA_STAGE_GENERATION_OUTCOME;
const ERROR_TYPE = ATTRIBUTES.ATTR_ERROR_TYPE;
const COUNT = METRICS.METRIC_LLAMA_STAGE_GENERATION_COUNT;
const DURATION = METRICS.METRIC_GEN_AI_SERVER_REQUEST_DURATION;
const FIRST_TOKEN = METRICS.METRIC_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN;
const PER_TOKEN = METRICS.METRIC_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN;
const COMPUTE_DURATION = METRICS.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION;

useApi();

/** A coordinator that also counts its schedulers. */
function setUp(options: GenerationTelemetryOptions = {}, tracing = new Tracing()) {
  const reader = new ManualReader();
  const meterProvider = providerWith(reader);
  const metrics = new VerifyWindowMetrics({ meterProvider });
  const tracerProvider = tracing.provider;
  const generations = new GenerationTelemetry({
    tracerProvider,
    meterProvider,
    metrics,
    ...options,
  });
  return { tracing, reader, generations };
}

const abortError = () => new DOMException('gone', 'AbortError');

/** What ends a generation or a window. */
type Handle = Pick<Generation, 'cancel' | 'end' | 'fail'> & Disposable;

/** Each way to end one, and what it comes to. */
const ends: [string, (handle: Handle) => void, string, string?][] = [
  ['end', ({ end }) => end(), 'completed'],
  ['its disposal', (handle) => handle[Symbol.dispose](), 'completed'],
  ['cancel', ({ cancel }) => cancel(), 'cancelled'],
  ['fail with an AbortError', ({ fail }) => fail(abortError()), 'cancelled'],
  ['fail', ({ fail }) => fail(new RangeError('secret')), 'failed', 'RangeError'],
  [
    'fail with a deadline that passed',
    ({ fail }) => fail(new DOMException('late', 'TimeoutError')),
    'failed',
    'TimeoutError',
  ],
  ...hostileValues.map(
    ({ name, make, errorType }): [string, (handle: Handle) => void, string, string] => [
      `fail with something hostile: ${name}`,
      ({ fail }) => fail(make()),
      'failed',
      errorType,
    ],
  ),
];

describe('a generation that is started', () => {
  test('has a scheduler, a span that goes on, and the context of that span', () => {
    const { tracing, generations } = setUp();
    const { scheduler, span, context: inside } = generations.start({ depth: 3 });
    expect([scheduler.depth, scheduler.isClosed, span.isRecording()]).toEqual([3, false, true]);
    expect(trace.getSpan(inside)).toBe(span);
    expect(trace.getActiveSpan()).toBeUndefined();
    expect(tracing.spans()).toEqual([]);
  });

  test('is below the span that is active, and has below it what its context is given to', () => {
    const { tracing, generations } = setUp();
    const generation = tracing.tracer.startActiveSpan('request', (request) => {
      const started = generations.start({ depth: 1 });
      request.end();
      return started;
    });
    context.with(generation.context, () => tracing.tracer.startSpan('draft').end());
    generation.scheduler.completeNext(generation.scheduler.open(0, 0).id);
    generation.end();
    const span = tracing.span(GENERATION);
    expect(isParent(tracing.span('request'), span)).toBe(true);
    expect(isParent(span, tracing.span('draft'))).toBe(true);
    expect(isParent(span, tracing.span(WINDOW))).toBe(true);
  });

  test('keeps what else is in the context that it is started in', () => {
    const { generations } = setUp();
    const key = Symbol('tenant');
    const outside = context.active().setValue(key, 'a');
    const generation = context.with(outside, () => generations.start({ depth: 1 }));
    expect(generation.context.getValue(key)).toBe('a');
    generation.end();
  });

  test('takes what the host adds to its span', () => {
    const { tracing, generations } = setUp();
    const { span, end } = generations.start({ depth: 1 });
    span.setAttribute('host', true).addEvent('of the host');
    end();
    expect(tracing.span(GENERATION)).toMatchObject({
      attributes: { host: true },
      events: [{ name: 'of the host' }],
    });
  });

  test('takes tokens from its start on, in seconds', async () => {
    const { reader, generations } = setUp();
    let passedMs = 1000;
    vi.spyOn(performance, 'now').mockImplementation(() => passedMs);
    const { tokensCommitted, end } = generations.start({ depth: 1 });
    passedMs += 200;
    tokensCommitted(1);
    passedMs += 300;
    tokensCommitted(3);
    passedMs += 100;
    end();
    passedMs += 5000;
    tokensCommitted(100);
    const collected = await reader.read();
    const seconds = [DURATION, FIRST_TOKEN, PER_TOKEN].map((name) => {
      const { count, sum } = collected.histogram(name)[0]?.value ?? {};
      return [count, sum];
    });
    expect(seconds).toEqual([
      [1, 0.6],
      [1, 0.2],
      [1, 0.1],
    ]);
  });

  test('works also where it is not sampled', async () => {
    const { tracing, reader, generations } = setUp(
      {},
      new Tracing({ sampler: new AlwaysOffSampler() }),
    );
    const generation = generations.start({ depth: 1 });
    expect(generation.span.isRecording()).toBe(false);
    const { traceparent } = injectTraceContext(generation.context);
    expect(traceparent).toMatch(/-00$/);
    generation.tokensCommitted(2);
    generation.end();
    expect(tracing.spans()).toEqual([]);
    expect((await reader.read()).sum(COUNT, { [OUTCOME]: 'completed' })).toBe(1);
  });

  test('works also without an SDK', () => {
    const { scheduler, span, tokensCommitted, end } = new GenerationTelemetry().start({ depth: 1 });
    expect(span.isRecording()).toBe(false);
    scheduler.completeNext(scheduler.open(0, 0).id);
    tokensCommitted(2);
    end();
    expect(scheduler.isClosed).toBe(true);
  });

  test('throws where its scheduler cannot be, and has failed', async () => {
    const { tracing, reader, generations } = setUp();
    expect(() => generations.start({ depth: 0.5 })).toThrow(
      expect.objectContaining({ code: 'invalid_argument' }),
    );
    expect(tracing.span(GENERATION).attributes).toMatchObject({
      [OUTCOME]: 'failed',
      [ERROR_TYPE]: 'invalid_argument',
    });
    expect((await reader.read()).sum(COUNT, { [OUTCOME]: 'failed' })).toBe(1);
  });

  test('is ended by a `using` block', () => {
    const { tracing, generations } = setUp();
    let used: VerifyWindowScheduler | undefined;
    {
      using generation = generations.start({ depth: 1 });
      used = generation.scheduler;
      used.open(0, 0);
    }
    expect(used.isClosed).toBe(true);
    expect(tracing.span(GENERATION).attributes[OUTCOME]).toBe('completed');
    expect(tracing.span(WINDOW).ended).toBe(true);
  });

  test('that fails in a `using` block has failed', () => {
    const { tracing, generations } = setUp();
    const decode = () => {
      using generation = generations.start({ depth: 1 });
      try {
        throw new RangeError('secret');
      } catch (error) {
        generation.fail(error);
        throw error;
      }
    };
    expect(decode).toThrow(RangeError);
    expect(tracing.span(GENERATION).attributes[OUTCOME]).toBe('failed');
  });

  test('goes on where the host closes its scheduler, until it is ended', async () => {
    const { tracing, generations, reader } = setUp();
    const generation = generations.start({ depth: 2 });
    generation.scheduler.open(0, 0);
    generation.scheduler.close();
    expect(tracing.spans(GENERATION)).toEqual([]);
    generation.end();
    expect(tracing.span(GENERATION).attributes).toMatchObject({
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OPENED]: 1,
    });
    expect((await reader.read()).sum(COUNT)).toBe(1);
  });

  describe.each(ends)('and ended by %s', (_, finish, outcome, errorType) => {
    test(`was ${outcome}, in its span and in the metrics`, async () => {
      const complain = listenToDiag();
      const { tracing, reader, generations } = setUp();
      const generation = generations.start({ depth: 2 });
      generation.scheduler.open(0, 0);
      generation.tokensCommitted(1);
      generation.tokensCommitted(1);
      finish(generation);
      expect(generation.scheduler.isClosed).toBe(true);
      const span = tracing.span(GENERATION);
      expect(span.attributes[OUTCOME]).toBe(outcome);
      expect(span.attributes[ERROR_TYPE]).toBe(errorType);
      expect(span.status).toEqual({
        code: errorType === undefined ? SpanStatusCode.UNSET : SpanStatusCode.ERROR,
      });
      expect(JSON.stringify(span.attributes)).not.toContain('secret');
      expect(tracing.span(WINDOW).status.code).toBe(SpanStatusCode.UNSET);
      expect(nanoseconds(tracing.span(WINDOW).endTime)).toBeLessThanOrEqual(
        nanoseconds(span.endTime),
      );

      const collected = await reader.read();
      const counts = collected.points(COUNT);
      expect(
        Object.fromEntries(counts.map(({ attributes, value }) => [attributes[OUTCOME], value])),
      ).toEqual({ completed: 0, cancelled: 0, failed: 0, abandoned: 0, [outcome]: 1 });
      for (const { attributes } of counts) expect(attributes).not.toHaveProperty(ERROR_TYPE);
      const [duration] = collected.histogram(DURATION);
      expect(duration?.attributes[OUTCOME]).toBe(outcome);
      expect(duration?.attributes[ERROR_TYPE]).toBe(errorType);
      const isComplete = outcome === 'completed' ? 1 : 0;
      expect([FIRST_TOKEN, PER_TOKEN].map((name) => collected.count(name))).toEqual([
        isComplete,
        isComplete,
      ]);
      expect(complain).not.toHaveBeenCalled();
    });
  });

  test('is what its first end makes it, whatever comes after', async () => {
    const sequences = fc.array(fc.constantFrom(...ends.slice(0, 6)), {
      minLength: 1,
      maxLength: 6,
    });
    await fc.assert(
      fc.asyncProperty(sequences, async (sequence) => {
        const { tracing, reader, generations } = setUp();
        const generation = generations.start({ depth: 1 });
        for (const [, finish] of sequence) finish(generation);
        const [[, , outcome, errorType]] = sequence as [(typeof sequence)[number]];
        expect(tracing.span(GENERATION).attributes).toMatchObject({ [OUTCOME]: outcome });
        expect(tracing.span(GENERATION).attributes[ERROR_TYPE]).toBe(errorType);
        const collected = await reader.read();
        expect(collected.sum(COUNT)).toBe(1);
        expect(collected.sum(COUNT, { [OUTCOME]: outcome })).toBe(1);
        expect(collected.count(DURATION)).toBe(1);
      }),
      { numRuns: 30 },
    );
  });

  test('may be ended while `run` still runs it, and stays what it was then', async () => {
    const { tracing, reader, generations } = setUp();
    const running = generations.run({ depth: 1 }, async ({ cancel }) => {
      cancel();
      await setImmediate();
      throw new RangeError('after the client had gone');
    });
    await expect(running).rejects.toThrow(RangeError);
    expect(tracing.span(GENERATION)).toMatchObject({
      attributes: { [OUTCOME]: 'cancelled' },
      status: { code: SpanStatusCode.UNSET },
    });
    expect((await reader.read()).sum(COUNT)).toBe(1);
  });

  test('may be ended by what hears that its scheduler closes', async () => {
    const { reader, generations } = setUp();
    const generation = generations.start({ depth: 1 });
    generation.scheduler.subscribe({ closed: () => generation.cancel() });
    generation.end();
    expect((await reader.read()).sum(COUNT)).toBe(1);
  });
});

describe('the averages of a generation', () => {
  const averages = [
    METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT,
    METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT,
    METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION,
    METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION,
  ];

  test.each(ends.slice(0, 6))('are none where %s came before a window', async (_, finish) => {
    const { reader, generations } = setUp();
    finish(generations.start({ depth: 2 }));
    const collected = await reader.read();
    expect(averages.map((name) => collected.count(name))).toEqual([0, 0, 0, 0]);
    expect(collected.sum(COUNT)).toBe(1);
  });

  test.each(ends.slice(0, 6))('are there where a window was open at %s', async (_, finish) => {
    const { reader, generations } = setUp();
    const generation = generations.start({ depth: 2 });
    generation.scheduler.open(0, 0);
    finish(generation);
    const collected = await reader.read();
    expect(averages.map((name) => collected.count(name))).toEqual([1, 1, 1, 1]);
  });
});

describe('a generation that nobody ends', () => {
  test.each<[string, (generations: GenerationTelemetry) => unknown]>([
    [
      'that was started',
      (generations) => {
        const { scheduler, tokensCommitted } = generations.start({ depth: 2 });
        scheduler.open(0, 0);
        scheduler.open(8, 0);
        tokensCommitted(5);
      },
    ],
    [
      'whose decode loop never settles',
      (generations) => {
        void generations.run({ depth: 2 }, async ({ scheduler, tokensCommitted }) => {
          scheduler.open(0, 0);
          scheduler.open(8, 0);
          tokensCommitted(5);
          await new Promise(() => {});
        });
      },
    ],
    [
      'whose stream nobody reads to its end',
      async (generations) => {
        const stream = generations.run(
          { depth: 2 },
          async function* ({ scheduler, tokensCommitted }) {
            scheduler.open(0, 0);
            scheduler.open(8, 0);
            tokensCommitted(5);
            yield 1;
            yield 2;
          },
        );
        await stream.next();
      },
    ],
  ])('%s was abandoned once it is garbage-collected', async (_, forget) => {
    const { tracing, reader, generations } = setUp();
    await forget(generations);
    await vi.waitFor(
      () => {
        globalThis.gc?.();
        expect(tracing.spans(GENERATION)).toHaveLength(1);
      },
      { timeout: 4000 },
    );
    const span = tracing.span(GENERATION);
    expect(span.attributes).toMatchObject({
      [OUTCOME]: 'abandoned',
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OPENED]: 2,
    });
    expect(span.status).toEqual({ code: SpanStatusCode.UNSET });
    const windows = tracing.spans(WINDOW);
    expect(windows).toHaveLength(2);
    for (const window of windows) {
      expect(isParent(span, window)).toBe(true);
      expect(window.attributes).toMatchObject({
        [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON]: 'closed',
      });
    }

    const collected = await reader.read();
    expect(collected.sum(COUNT)).toBe(1);
    expect(collected.sum(COUNT, { [OUTCOME]: 'abandoned' })).toBe(1);
    expect(collected.count(DURATION)).toBe(1);
    expect([FIRST_TOKEN, PER_TOKEN].map((name) => collected.count(name))).toEqual([0, 0]);
    const opened = collected.sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED);
    const dropped = collected.sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED);
    const inFlight = collected.sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT);
    expect([opened, dropped, inFlight]).toEqual([2, 2, 0]);
  });

  test('is not abandoned for as long as somebody has its scheduler', async () => {
    const { tracing, generations } = setUp();
    const { scheduler } = generations.start({ depth: 1 });
    await afterCollecting([new WeakRef({})]);
    expect(tracing.spans(GENERATION)).toEqual([]);
    scheduler.close();
  });

  test('is counted once where it has been ended, and is garbage-collected', async () => {
    const { tracing, reader, generations } = setUp();
    const left: WeakRef<object>[] = [];
    const finish = () => {
      const generation = generations.start({ depth: 1 });
      generation.scheduler.open(0, 0);
      generation.end();
      left.push(new WeakRef(generation.scheduler));
    };
    for (let i = 0; i < 100; i++) finish();
    await afterCollecting(left);
    await setImmediate();
    expect(tracing.spans(GENERATION)).toHaveLength(100);
    expect((await reader.read()).sum(COUNT, { [OUTCOME]: 'completed' })).toBe(100);
    expect((await reader.read()).sum(COUNT)).toBe(100);
  });

  /** Waits until all of this, which nobody holds, is gone. */
  async function afterCollecting(refs: readonly WeakRef<object>[]): Promise<void> {
    const collect = () => {
      globalThis.gc?.();
      expect(refs.filter((ref) => ref.deref() !== undefined)).toEqual([]);
    };
    // What a WeakRef was made for is kept until the end of the job.
    await setImmediate();
    await vi.waitFor(collect, { timeout: 4000 });
  }
});

/** A stage with an SDK of its own, and messages of as many traces as there are asked for. */
function setUpStage(options: Partial<StageTelemetryOptions> = {}, tracing = new Tracing()) {
  const reader = new ManualReader();
  const stage = new StageTelemetry({
    index: 1,
    tracerProvider: tracing.provider,
    meterProvider: providerWith(reader),
    ...options,
  });
  let traces = 0;
  const newCarrier = (flags = '01') => {
    traces++;
    return {
      traceparent: `00-${traces.toString(16).padStart(32, 'a')}-${'b'.repeat(16)}-${flags}`,
    };
  };
  return { tracing, reader, stage, newCarrier };
}

describe('a stage window that is started', () => {
  test('goes on until it is ended, and carries what it came with', () => {
    const { tracing, stage, newCarrier } = setUpStage();
    const carrier = newCarrier();
    const window = stage.startWindow(carrier);
    expect(window.carrier).toEqual(carrier);
    expect(window.span?.isRecording()).toBe(true);
    expect(trace.getSpan(window.context)).toBe(window.span);
    expect(trace.getActiveSpan()).toBeUndefined();
    context.with(window.context, () => tracing.tracer.startSpan('of the host').end());
    window.compute(() => {});
    expect(tracing.spans(STAGE)).toEqual([]);
    window.end();
    for (const name of ['of the host', COMPUTE]) {
      expect(isParent(tracing.span(STAGE), tracing.span(name))).toBe(true);
    }
  });

  test.each([
    ['is missing', undefined],
    ['is broken', { traceparent: 'broken' }],
    ['is not sampled', { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-00` }],
  ])('whose trace %s has no span that records, and can be ended', async (_, carrier) => {
    const { tracing, reader, stage } = setUpStage();
    const window = stage.startWindow(carrier);
    expect(window.span?.isRecording() ?? false).toBe(false);
    expect(window.compute(() => 7)).toBe(7);
    window.fail(new RangeError());
    expect(tracing.spans()).toEqual([]);
    expect((await reader.read()).count(COMPUTE_DURATION)).toBe(1);
  });

  test.each(ends)('and ended by %s was %s', (_, finish, _outcome, errorType) => {
    const complain = listenToDiag();
    const { tracing, stage, newCarrier } = setUpStage();
    const window = stage.startWindow(newCarrier());
    finish(window);
    window.fail(new TypeError('too late'));
    window.end();
    const { attributes, status } = tracing.span(STAGE);
    expect(attributes[ERROR_TYPE]).toBe(errorType);
    expect(status).toEqual({
      code: errorType === undefined ? SpanStatusCode.UNSET : SpanStatusCode.ERROR,
    });
    expect(complain).not.toHaveBeenCalled();
  });

  test('is ended by a `using` block', () => {
    const { tracing, stage, newCarrier } = setUpStage();
    {
      using window = stage.startWindow(newCarrier());
      window.compute(() => {});
    }
    expect(tracing.span(STAGE).status).toEqual({ code: SpanStatusCode.UNSET });
  });

  test.each(ends.slice(0, 6))(
    'takes its open phases along, and %s is no error of theirs',
    async (_, finish) => {
      const { tracing, reader, stage, newCarrier } = setUpStage();
      const window = stage.startWindow(newCarrier());
      let reject = (_: unknown) => {};
      const computed = window.compute(
        () =>
          new Promise((_, rejected) => {
            reject = rejected;
          }),
      );
      finish(window);
      expect(tracing.span(COMPUTE).status).toEqual({ code: SpanStatusCode.UNSET });
      reject(new RangeError('too late'));
      await expect(computed).rejects.toThrow(RangeError);
      expect(tracing.spans(COMPUTE)).toHaveLength(1);
      expect((await reader.read()).count(COMPUTE_DURATION)).toBe(1);
    },
  );

  test('has the host’s own spans below it in a phase', () => {
    const { tracing, stage, newCarrier } = setUpStage();
    const window = stage.startWindow(newCarrier());
    window.compute(() => tracing.tracer.startSpan('of the host').end());
    window.end();
    expect(isParent(tracing.span(COMPUTE), tracing.span('of the host'))).toBe(true);
  });

  test('has them below it also where its phases are attributes', () => {
    const { tracing, stage, newCarrier } = setUpStage({ phases: 'attributes' });
    const window = stage.startWindow(newCarrier());
    window.compute(() => tracing.tracer.startSpan('of the host').end());
    window.end();
    expect(isParent(tracing.span(STAGE), tracing.span('of the host'))).toBe(true);
  });

  test('has none of them sampled where it is not', () => {
    const { tracing, stage, newCarrier } = setUpStage();
    const window = stage.startWindow(newCarrier('00'));
    window.compute(() => tracing.tracer.startSpan('of the host').end());
    window.end();
    expect(tracing.spans()).toEqual([]);
  });
});

describe('a compute pass of several windows', () => {
  const SIZE = ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_BATCH_SIZE;

  test('is a span in the trace of each, of one start and one end, and recorded once', async () => {
    const { tracing, reader, stage, newCarrier } = setUpStage();
    const windows = Array.from({ length: 3 }, () => stage.startWindow(newCarrier()));
    const result = {};
    expect(stage.computeBatch(windows, () => result)).toBe(result);
    for (const window of windows) window.end();

    const passes = tracing.spans(COMPUTE);
    const traceIds = passes.map((pass) => pass.spanContext().traceId);
    expect(new Set(traceIds).size).toBe(3);
    expect(traceIds).toEqual(tracing.spans(STAGE).map((span) => span.spanContext().traceId));
    for (const [index, pass] of passes.entries()) {
      expect(pass.parentSpanContext?.spanId).toBe(windows[index]?.span?.spanContext().spanId);
      expect(pass.attributes[SIZE]).toBe(3);
      expect([pass.startTime, pass.endTime]).toEqual([passes[0]?.startTime, passes[0]?.endTime]);
    }
    expect((await reader.read()).count(COMPUTE_DURATION)).toBe(1);
  });

  test('of one window is as its own', () => {
    const { tracing, stage, newCarrier } = setUpStage();
    const window = stage.startWindow(newCarrier());
    stage.computeBatch([window], () => {});
    expect(tracing.span(COMPUTE).attributes).not.toHaveProperty(SIZE);
  });

  test('of no window is recorded all the same', async () => {
    const { tracing, reader, stage } = setUpStage();
    expect(stage.computeBatch([], () => 7)).toBe(7);
    expect(tracing.spans()).toEqual([]);
    expect((await reader.read()).count(COMPUTE_DURATION)).toBe(1);
  });

  test('counts the windows without a span, and runs in the first one that has one', async () => {
    const { tracing, reader, stage, newCarrier } = setUpStage();
    const windows = [undefined, newCarrier('00'), newCarrier(), newCarrier()].map((carrier) =>
      stage.startWindow(carrier),
    );
    stage.computeBatch(windows, () => tracing.tracer.startSpan('of the host').end());
    const passes = tracing.spans(COMPUTE);
    expect(passes.map(({ attributes }) => attributes[SIZE])).toEqual([4, 4]);
    expect(isParent(passes[0] as (typeof passes)[number], tracing.span('of the host'))).toBe(true);
    expect((await reader.read()).count(COMPUTE_DURATION)).toBe(1);
  });

  test('that fails has failed for each, and the host gets its error', async () => {
    const { tracing, stage, newCarrier } = setUpStage();
    const windows = [newCarrier(), newCarrier()].map((carrier) => stage.startWindow(carrier));
    const error = new RangeError('secret');
    await expect(stage.computeBatch(windows, () => Promise.reject(error))).rejects.toBe(error);
    expect(tracing.spans(COMPUTE).map(({ attributes }) => attributes[ERROR_TYPE])).toEqual([
      'RangeError',
      'RangeError',
    ]);
  });

  test('may be of windows that run, and lasts as long as its work', async () => {
    const { tracing, reader, stage, newCarrier } = setUpStage();
    await stage.window(newCarrier(), (first) =>
      stage.window(newCarrier(), async (second) => {
        await stage.computeBatch([first, second], async () => {
          await setImmediate();
          expect(tracing.spans()).toEqual([]);
        });
        expect(tracing.spans(COMPUTE)).toHaveLength(2);
      }),
    );
    expect(tracing.spans(STAGE)).toHaveLength(2);
    expect((await reader.read()).count(COMPUTE_DURATION)).toBe(1);
  });

  test('of windows with attributes for their phases is noted on each', async () => {
    const { tracing, reader, stage, newCarrier } = setUpStage({ phases: 'attributes' });
    let passedMs = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => passedMs);
    const windows = [newCarrier(), newCarrier()].map((carrier) => stage.startWindow(carrier));
    stage.computeBatch(windows, () => {
      passedMs += 40;
    });
    windows[0]?.compute(() => {
      passedMs += 2;
    });
    for (const window of windows) window.end();
    expect(
      tracing
        .spans(STAGE)
        .map(({ attributes }) => [
          attributes[ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_COMPUTE_MS],
          attributes[SIZE],
        ]),
    ).toEqual([
      [42, 2],
      [40, 2],
    ]);
    expect((await reader.read()).histogram(COMPUTE_DURATION)[0]?.value).toMatchObject({
      count: 2,
      sum: 0.042,
    });
  });

  test('leaves alone what is no window of a stage', async () => {
    const { tracing, reader, stage, newCarrier } = setUpStage();
    const window = stage.startWindow(newCarrier());
    const strangers = [{}, null, undefined, 7, setUpStage().stage];
    const windows = [window, ...strangers] as StartedStageWindow[];
    expect(stage.computeBatch(windows, () => 7)).toBe(7);
    expect(tracing.span(COMPUTE).attributes).not.toHaveProperty(SIZE);
    expect((await reader.read()).count(COMPUTE_DURATION)).toBe(1);
  });

  test('goes on for the others where one of its windows is cancelled', async () => {
    const { tracing, reader, stage, newCarrier } = setUpStage();
    let passedMs = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => passedMs);
    const [gone, other] = [newCarrier(), newCarrier()].map((carrier) =>
      stage.startWindow(carrier),
    ) as [StartedStageWindow, StartedStageWindow];
    await stage.computeBatch([gone, other], async () => {
      passedMs += 10;
      gone.cancel();
      passedMs += 90;
    });
    other.end();
    const pass = tracing
      .spans(COMPUTE)
      .find(
        ({ parentSpanContext }) => parentSpanContext?.spanId === other.span?.spanContext().spanId,
      );
    expect((pass?.duration[1] ?? 0) / 1e6).toBeCloseTo(100, 2);
    expect((await reader.read()).histogram(COMPUTE_DURATION)[0]?.value.sum).toBeCloseTo(0.1);
  });

  test('serves a window that it is given twice once', () => {
    const { tracing, stage, newCarrier } = setUpStage();
    const window = stage.startWindow(newCarrier());
    stage.computeBatch([window, window], () => {});
    expect(tracing.spans(COMPUTE)).toHaveLength(1);
  });
});
