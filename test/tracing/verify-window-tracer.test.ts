import {
  type Context,
  context,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { suppressTracing } from '@opentelemetry/core';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  ParentBasedSampler,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import { describe, expect, test, vi } from 'vitest';
import * as ATTRIBUTES from '../../semconv/attributes.js';
import {
  EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import {
  type DropReason,
  injectTraceContext,
  pipelineAttributes,
  summaryAttributes,
  VerifyWindowScheduler,
  VerifyWindowTracer,
  type VerifyWindowTracerOptions,
  type WindowOutcome,
  type WindowVerdict,
  windowContext,
} from '../../src/index.js';
import { brokenProcessor, isParent, listenToDiag, nanoseconds, Tracing, useApi } from './sdk.js';

const WINDOW = SPAN_LLAMA_STAGE_VERIFY_WINDOW;
const ID = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID;
const VERDICT = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT;
const DROP_REASON = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON;
const IN_FLIGHT_AFTER = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER;
const ERROR_TYPE = ATTRIBUTES.ATTR_ERROR_TYPE;

useApi();

/** A scheduler that is traced below a span of the host's. */
function setUp(options: VerifyWindowTracerOptions = {}, tracing = new Tracing()) {
  const generation = tracing.tracer.startSpan('generation');
  const parent = trace.setSpan(context.active(), generation);
  const scheduler = new VerifyWindowScheduler({ depth: 4 });
  const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider, ...options });
  tracer.observe(scheduler, parent);
  const windows = () => tracing.spans(WINDOW);
  return { tracing, generation, parent, scheduler, tracer, windows };
}

function idsOf(spans: readonly ReadableSpan[]) {
  return spans.map(({ attributes }) => attributes[ID]);
}

describe('a window', () => {
  test('is a client span below the generation, from its admission to its reply', () => {
    const { scheduler, windows, generation, tracing } = setUp();
    scheduler.open(16, 3);
    scheduler.open(24, 3);
    expect(windows()).toEqual([]);
    scheduler.completeNext(1, { proposedTokens: 8, acceptedTokens: 5 });
    const [span] = windows();
    expect(span).toMatchObject({ name: WINDOW, kind: SpanKind.CLIENT, ended: true });
    expect(span?.status).toEqual({ code: SpanStatusCode.UNSET });
    expect(span?.attributes).toEqual({
      [ID]: 1,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION]: 16,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DECODE_STEP]: 3,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT]: 1,
      [IN_FLIGHT_AFTER]: 1,
      [VERDICT]: 'partial_accept',
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS]: 8,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS]: 5,
    });
    scheduler.close();
    generation.end();
    expect(windows().every((window) => isParent(tracing.span('generation'), window))).toBe(true);
    expect(span?.instrumentationScope.name).toBe('llama-stage-otel');
  });

  test('counts itself among those in flight once it is admitted', () => {
    const { scheduler, windows } = setUp();
    for (let i = 0; i < 4; i++) scheduler.open(i, i);
    scheduler.close();
    const inFlight = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT;
    expect(windows().map(({ attributes }) => attributes[inFlight])).toEqual([1, 2, 3, 4]);
  });

  test.each<[WindowVerdict, WindowOutcome | undefined, (number | undefined)[]]>([
    ['full_accept', { proposedTokens: 4, acceptedTokens: 4 }, [4, 4]],
    ['partial_accept', { proposedTokens: 4, acceptedTokens: 1 }, [4, 1]],
    ['reject', { proposedTokens: 4, acceptedTokens: 0 }, [4, 0]],
    ['unverified', { proposedTokens: 0, acceptedTokens: 0 }, [0, 0]],
    ['unverified', undefined, [undefined, undefined]],
    ['stale', { stale: true }, [undefined, undefined]],
  ])('shows the verdict %s without an error', (verdict, outcome, tokens) => {
    const { scheduler, windows } = setUp();
    scheduler.completeNext(scheduler.open(0, 0).id, outcome);
    const [span] = windows();
    expect(span?.attributes[VERDICT]).toBe(verdict);
    expect([
      span?.attributes[ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS],
      span?.attributes[ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS],
    ]).toEqual(tokens);
    expect(span?.attributes).not.toHaveProperty(ERROR_TYPE);
    expect(span?.attributes).not.toHaveProperty(DROP_REASON);
    expect(span?.status).toEqual({ code: SpanStatusCode.UNSET });
  });

  test.each<[DropReason, (scheduler: VerifyWindowScheduler) => unknown]>([
    ['stale', (scheduler) => scheduler.discardStale()],
    ['closed', (scheduler) => scheduler.close()],
    ['closed', (scheduler) => scheduler[Symbol.dispose]()],
  ])('that is dropped as %s ends with the reason, and without an error', (reason, drop) => {
    const { scheduler, windows } = setUp();
    scheduler.open(0, 0);
    scheduler.open(8, 0);
    drop(scheduler);
    expect(idsOf(windows())).toEqual([1, 2]);
    for (const { attributes, status } of windows()) {
      expect(attributes).toMatchObject({ [DROP_REASON]: reason, [IN_FLIGHT_AFTER]: 0 });
      expect(attributes).not.toHaveProperty(VERDICT);
      expect(status).toEqual({ code: SpanStatusCode.UNSET });
    }
  });

  test('is timed finer than in milliseconds, and never begins before the one it follows', () => {
    const { scheduler, windows } = setUp();
    for (let id = 1; id <= 100; id++) scheduler.completeNext(scheduler.open(id, id).id);
    const times = windows().flatMap(({ startTime, endTime }) => [startTime, endTime]);
    expect(times.map(nanoseconds)).toEqual(times.map(nanoseconds).toSorted(ascending));
    expect(times.some(([, nanos]) => nanos % 1e6 !== 0)).toBe(true);
  });

  test('shows the time of a wall clock that was set while the process ran', () => {
    const { now } = Date;
    const hour = 3_600_000;
    for (const shift of [hour, -hour, 0]) {
      vi.spyOn(Date, 'now').mockImplementation(() => now() + shift);
      const { scheduler, windows } = setUp();
      scheduler.completeNext(scheduler.open(0, 0).id);
      const startMs = Number(nanoseconds(windows()[0]?.startTime ?? [0, 0]) / 1_000_000n);
      expect(Math.abs(startMs - Date.now())).toBeLessThan(hour / 2);
    }
  });
});

describe('a reply out of order', () => {
  test('marks the window whose reply was due, and no other', () => {
    const { scheduler, windows, generation, tracing } = setUp();
    scheduler.open(0, 0);
    scheduler.open(8, 0);
    expect(() => scheduler.completeNext(2)).toThrow('out of order');
    scheduler.completeNext(1);
    scheduler.completeNext(2);
    generation.end();
    const [due, other] = windows();
    expect(due?.attributes).toMatchObject({
      [ID]: 1,
      [ERROR_TYPE]: 'reply_out_of_order',
      [VERDICT]: 'unverified',
    });
    expect(due?.status).toEqual({ code: SpanStatusCode.ERROR });
    expect(other?.attributes).not.toHaveProperty(ERROR_TYPE);
    expect(other?.status).toEqual({ code: SpanStatusCode.UNSET });
    expect(tracing.span('generation').status).toEqual({ code: SpanStatusCode.UNSET });
  });

  test('marks no window where that whose reply was due is not traced', () => {
    const tracing = new Tracing();
    const scheduler = new VerifyWindowScheduler({ depth: 4 });
    scheduler.open(0, 0);
    const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
    tracer.observe(scheduler, trace.setSpan(context.active(), tracing.tracer.startSpan('late')));
    scheduler.open(8, 0);
    expect(() => scheduler.completeNext(2)).toThrow('out of order');
    scheduler.close();
    expect(idsOf(tracing.spans(WINDOW))).toEqual([2]);
    expect(tracing.span(WINDOW).status).toEqual({ code: SpanStatusCode.UNSET });
  });
});

test.each<[string, (scheduler: VerifyWindowScheduler) => unknown]>([
  ['a window too many', (scheduler) => scheduler.open(0, 0)],
  ['a position that is none', (scheduler) => scheduler.open(-1, 0)],
  ['an outcome that cannot be', (scheduler) => scheduler.completeNext(1, {} as WindowOutcome)],
])('%s is not the fault of a window that is in flight', (_, act) => {
  const { scheduler, windows } = setUp();
  for (let i = 0; i < 4; i++) scheduler.open(i, i);
  expect(() => act(scheduler)).toThrow();
  scheduler.close();
  expect(() => scheduler.open(0, 0)).toThrow('closed');
  expect(windows().map(({ status }) => status.code)).toEqual(Array(4).fill(SpanStatusCode.UNSET));
});

describe('the generation span', () => {
  test('gets an event for each recovery epoch, with the windows that became stale', () => {
    const { scheduler, generation, tracing } = setUp();
    scheduler.open(0, 0);
    scheduler.markRecoveryEpoch(3);
    scheduler.markStale(2);
    scheduler.markRecoveryEpoch(0);
    scheduler.close();
    generation.end();
    const { events, startTime, endTime } = tracing.span('generation');
    expect(events.map(({ name, attributes }) => ({ name, attributes }))).toEqual(
      [3, 0].map((marked) => ({
        name: EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
        attributes: { [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED]: marked },
      })),
    );
    const times = [startTime, ...events.map(({ time }) => time), endTime].map(nanoseconds);
    // The host's span is timed by the SDK, from a whole millisecond on.
    expect((times[1] ?? 0n) - (times[0] ?? 0n)).toBeGreaterThan(-2_000_000n);
    expect(times[2]).toBeGreaterThanOrEqual(times[1] ?? 0n);
  });

  test('gets the pipeline and the summary attributes when the scheduler closes', () => {
    const { scheduler, generation, tracing } = setUp();
    scheduler.open(0, 0);
    scheduler.markDirectPredictionReturn(true);
    scheduler.recordHorizonRefill(3);
    scheduler.close();
    generation.end();
    const stats = scheduler.stats();
    expect(tracing.span('generation').attributes).toEqual({
      ...pipelineAttributes(stats),
      ...summaryAttributes(stats),
    });
  });

  test('that ended before its scheduler costs nothing but the attributes', () => {
    const { scheduler, generation, tracing, windows } = setUp();
    scheduler.open(0, 0);
    generation.end();
    scheduler.markRecoveryEpoch(1);
    scheduler.close();
    expect(windows()).toHaveLength(1);
    expect(tracing.span('generation')).toMatchObject({ attributes: {}, events: [] });
  });
});

describe('the parent', () => {
  test('is the span that is active when the scheduler is observed', () => {
    const tracing = new Tracing();
    const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    tracing.tracer.startActiveSpan('generation', (span) => {
      tracer.observe(scheduler);
      span.end();
    });
    tracing.tracer.startActiveSpan('elsewhere', (span) => {
      scheduler.completeNext(scheduler.open(0, 0).id);
      span.end();
    });
    expect(isParent(tracing.span('generation'), tracing.span(WINDOW))).toBe(true);
  });

  test.each([
    ['may be a span of another process, where that is sampled', 1],
    ['may not be a span of another process that is not sampled', 0],
  ])('%s', (_, traceFlags) => {
    const tracing = new Tracing();
    const [traceId, spanId] = ['a'.repeat(32), 'b'.repeat(16)];
    const spanContext = { traceId, spanId, traceFlags, isRemote: true };
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    const subscribe = vi.spyOn(scheduler, 'subscribe');
    const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
    tracer.observe(scheduler, trace.setSpanContext(context.active(), spanContext));
    scheduler.open(0, 0);
    scheduler.markRecoveryEpoch(1);
    scheduler.close();
    expect(subscribe).toHaveBeenCalledTimes(traceFlags);
    expect(tracing.spans().map(({ parentSpanContext }) => parentSpanContext)).toEqual(
      Array(traceFlags).fill(spanContext),
    );
  });

  test.each<[string, (tracing: Tracing) => Context]>([
    ['is not sampled', ({ tracer }) => trace.setSpan(context.active(), tracer.startSpan('out'))],
    ['is missing', () => context.active()],
    [
      'is suppressed',
      ({ tracer }) => {
        const suppressed = suppressTracing(context.active());
        return trace.setSpan(suppressed, tracer.startSpan('none', {}, suppressed));
      },
    ],
  ])('that %s leaves the scheduler unwatched, and creates nothing', (_, parentOf) => {
    const sampler = new AlwaysOffSampler();
    const tracing = new Tracing({ sampler });
    const parent = parentOf(tracing);
    const shouldSample = vi.spyOn(sampler, 'shouldSample');
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    const subscribe = vi.spyOn(scheduler, 'subscribe');
    new VerifyWindowTracer({ tracerProvider: tracing.provider }).observe(scheduler, parent);
    scheduler.completeNext(scheduler.open(0, 0).id);
    scheduler.close();
    expect(subscribe).not.toHaveBeenCalled();
    expect(shouldSample).not.toHaveBeenCalled();
    expect(tracing.spans()).toEqual([]);
  });

  test('that has ended already gets no windows', () => {
    const { generation, parent, tracer, windows } = setUp();
    generation.end();
    const late = new VerifyWindowScheduler({ depth: 2 });
    tracer.observe(late, parent);
    late.open(0, 0);
    late.close();
    expect(windows()).toEqual([]);
  });

  test('need not be there if it is not required: each window is a trace of its own', () => {
    const tracing = new Tracing();
    const tracerProvider = tracing.provider;
    const tracer = new VerifyWindowTracer({ tracerProvider, requireParentSpan: false });
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    tracer.observe(scheduler);
    scheduler.open(0, 0);
    scheduler.open(8, 0);
    scheduler.markRecoveryEpoch(1);
    scheduler.close();
    const [first, second] = tracing.spans(WINDOW);
    expect([first?.parentSpanContext, second?.parentSpanContext]).toEqual([undefined, undefined]);
    expect(first?.spanContext().traceId).not.toBe(second?.spanContext().traceId);
  });

  test('that is not sampled has no windows also where none is required', () => {
    const tracing = new Tracing({
      sampler: new ParentBasedSampler({ root: new AlwaysOffSampler() }),
    });
    const { windows, scheduler } = setUp({ requireParentSpan: false }, tracing);
    scheduler.open(0, 0);
    scheduler.close();
    expect(windows()).toEqual([]);
  });
});

describe('the context of a window', () => {
  test('is that of its span while it is in flight, and then that of the generation', () => {
    const { scheduler, windows } = setUp();
    const first = scheduler.open(0, 0);
    const second = scheduler.open(8, 0);
    const [one, two] = [windowContext(scheduler, first), windowContext(scheduler, second)];
    scheduler.close();
    expect(windows().map((span) => span.spanContext())).toEqual([
      trace.getSpanContext(one),
      trace.getSpanContext(two),
    ]);
    expect(windows().map((span) => span.parentSpanContext?.spanId)).toEqual([
      trace.getSpanContext(windowContext(scheduler, first))?.spanId,
      trace.getSpanContext(windowContext(scheduler, second))?.spanId,
    ]);
  });

  test('keeps what else is in the context of the generation', () => {
    const tracing = new Tracing();
    const key = Symbol('tenant');
    const parent = trace
      .setSpan(context.active(), tracing.tracer.startSpan('generation'))
      .setValue(key, 'a');
    const scheduler = new VerifyWindowScheduler({ depth: 1 });
    new VerifyWindowTracer({ tracerProvider: tracing.provider }).observe(scheduler, parent);
    expect(windowContext(scheduler, scheduler.open(0, 0)).getValue(key)).toBe('a');
    scheduler.close();
  });

  test('tells the next process of a trace that is not sampled, too', () => {
    const tracing = new Tracing({ sampler: new AlwaysOffSampler() });
    const scheduler = new VerifyWindowScheduler({ depth: 1 });
    tracing.tracer.startActiveSpan('generation', (span) => {
      const carrier = injectTraceContext(windowContext(scheduler, scheduler.open(0, 0)));
      const { traceId, spanId } = span.spanContext();
      expect(carrier).toEqual({ traceparent: `00-${traceId}-${spanId}-00` });
    });
    scheduler.close();
  });
});

describe('providers', () => {
  test('may be registered after the tracer was made', () => {
    const tracer = new VerifyWindowTracer();
    const tracing = new Tracing();
    const generate = () => {
      trace.getTracer('host').startActiveSpan('generation', (span) => {
        using scheduler = new VerifyWindowScheduler({ depth: 1 });
        tracer.observe(scheduler);
        scheduler.open(0, 0);
        span.end();
      });
    };
    generate();
    trace.setGlobalTracerProvider(tracing.provider);
    generate();
    expect(tracing.spans(WINDOW)).toHaveLength(1);
  });

  test('may be registered after a scheduler was observed that needs no parent', () => {
    const tracer = new VerifyWindowTracer({ requireParentSpan: false });
    using scheduler = new VerifyWindowScheduler({ depth: 2 });
    tracer.observe(scheduler);
    scheduler.open(0, 0);
    const tracing = new Tracing();
    trace.setGlobalTracerProvider(tracing.provider);
    scheduler.open(8, 0);
    scheduler.close();
    expect(idsOf(tracing.spans(WINDOW))).toEqual([2]);
  });

  test('may be set later; a scheduler that is observed is traced to its end as it began', () => {
    const { scheduler, tracer, tracing, parent } = setUp();
    const other = new Tracing();
    scheduler.open(0, 0);
    tracer.setTracerProvider(other.provider);
    scheduler.open(8, 0);
    scheduler.close();
    const next = new VerifyWindowScheduler({ depth: 1 });
    tracer.observe(next, parent);
    next.open(0, 0);
    next.close();
    expect(tracing.spans(WINDOW)).toHaveLength(2);
    expect(other.spans(WINDOW)).toHaveLength(1);
  });
});

describe('a scheduler', () => {
  test('that is observed twice, or by two tracers, has one span a window', () => {
    const { scheduler, tracer, tracing, parent, windows } = setUp();
    tracer.observe(scheduler, parent);
    new VerifyWindowTracer({ tracerProvider: tracing.provider }).observe(scheduler, parent);
    scheduler.open(0, 0);
    scheduler.close();
    expect(windows()).toHaveLength(1);
  });

  test('that was not traced for want of a parent may be observed again', () => {
    const tracing = new Tracing();
    const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
    using scheduler = new VerifyWindowScheduler({ depth: 1 });
    tracer.observe(scheduler);
    tracer.observe(scheduler, trace.setSpan(context.active(), tracing.tracer.startSpan('g')));
    scheduler.completeNext(scheduler.open(0, 0).id);
    expect(tracing.spans(WINDOW)).toHaveLength(1);
  });

  test('has spans for the windows that it opens from then on, in spite of those before', () => {
    const tracing = new Tracing();
    const scheduler = new VerifyWindowScheduler({ depth: 4 });
    scheduler.open(0, 0);
    scheduler.open(8, 0);
    const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
    tracer.observe(scheduler, trace.setSpan(context.active(), tracing.tracer.startSpan('g')));
    scheduler.open(16, 0);
    for (const id of [1, 2, 3]) scheduler.completeNext(id);
    expect(idsOf(tracing.spans(WINDOW))).toEqual([3]);
  });

  test('that is closed is not watched', () => {
    const { tracer, parent } = setUp();
    const closed = new VerifyWindowScheduler({ depth: 1 });
    closed.close();
    const subscribe = vi.spyOn(closed, 'subscribe');
    tracer.observe(closed, parent);
    expect(subscribe).not.toHaveBeenCalled();
  });

  test('whose windows another observer retires at once has their spans ended all the same', () => {
    const tracing = new Tracing();
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    // Subscribed before the tracer, so that a window is gone before the tracer hears that it opened.
    scheduler.subscribe({
      opened: (_, { id }) => {
        if (id <= 2) scheduler.completeNext(id);
      },
    });
    const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
    tracer.observe(scheduler, trace.setSpan(context.active(), tracing.tracer.startSpan('g')));
    for (let id = 1; id <= 3; id++) scheduler.open(id, id);
    scheduler.completeNext(3);
    expect(idsOf(tracing.spans(WINDOW))).toEqual([1, 2, 3]);
    scheduler.close();
    expect(idsOf(tracing.spans(WINDOW))).toEqual([1, 2, 3]);
  });
});

describe('the hook', () => {
  test('adds to each window span before it ends, however it ends', () => {
    const seen: number[] = [];
    const { scheduler, windows } = setUp({
      onWindowSpan: (span, window) => {
        seen.push(window.id);
        span.setAttribute('host.step', window.decodeStep);
      },
    });
    for (let step = 1; step <= 3; step++) scheduler.open(0, step);
    scheduler.completeNext(1);
    scheduler.discardStale();
    scheduler.open(0, 4);
    scheduler.close();
    expect(seen).toEqual([1, 2, 3, 4]);
    expect(windows().map(({ attributes }) => attributes['host.step'])).toEqual([1, 2, 3, 4]);
  });

  test('that throws is reported once, and breaks nothing', () => {
    const error = listenToDiag();
    const { scheduler, windows } = setUp({
      onWindowSpan: () => {
        throw new Error('broken hook');
      },
    });
    for (let id = 1; id <= 3; id++) scheduler.completeNext(scheduler.open(id, id).id);
    expect(windows()).toHaveLength(3);
    expect(error).toHaveBeenCalledTimes(1);
    expect(error.mock.calls[0]?.[0]).toContain('tracing verify windows failed');
  });

  test('may end the span itself, or open and retire windows', () => {
    const { scheduler, windows } = setUp({
      onWindowSpan: (span: Span, window) => {
        span.end();
        if (window.id === 1) scheduler.completeNext(scheduler.open(8, 8).id);
        if (window.id === 2) scheduler.close();
      },
    });
    scheduler.completeNext(scheduler.open(0, 0).id);
    expect(idsOf(windows())).toEqual([1, 2]);
  });
});

describe('what is broken in the host', () => {
  const generate = (tracer: VerifyWindowTracer, parent: Context) => {
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    tracer.observe(scheduler, parent);
    for (let id = 1; id <= 3; id++) {
      scheduler.open(id, id);
      windowContext(scheduler, scheduler.open(id, id));
      scheduler.markRecoveryEpoch(1);
      expect(() => scheduler.completeNext(99)).toThrow('out of order');
      scheduler.completeNext(2 * id - 1);
      scheduler.discardStale();
    }
    scheduler.open(0, 0);
    scheduler.close();
    return scheduler.stats();
  };

  test.each<[string, () => Tracing]>([
    ['a processor that throws at the start', () => broken('onStart')],
    ['a processor that throws at the end', () => broken('onEnd')],
    [
      'a sampler that throws',
      () => {
        const sampler = new AlwaysOnSampler();
        sampler.shouldSample = () => {
          throw new Error('broken sampler');
        };
        return new Tracing({ sampler });
      },
    ],
    [
      'a provider that throws',
      () => {
        const tracing = new Tracing();
        tracing.provider.getTracer = () => {
          throw new Error('broken provider');
        };
        return tracing;
      },
    ],
  ])('%s is reported once, and never reaches the caller of the scheduler', (_, make) => {
    const error = listenToDiag();
    const sound = new Tracing();
    const parent = trace.setSpan(context.active(), sound.tracer.startSpan('generation'));
    const tracer = new VerifyWindowTracer({ tracerProvider: make().provider });
    expect(generate(tracer, parent)).toMatchObject({ opened: 7, recoveryEpochs: 3 });
    generate(tracer, parent);
    expect(error).toHaveBeenCalledTimes(1);
  });

  function broken(place: 'onStart' | 'onEnd'): Tracing {
    return new Tracing({ processors: [brokenProcessor(place)] });
  }

  test('a logger that throws as well is left alone', () => {
    listenToDiag().mockImplementation(() => {
      throw new Error('broken logger');
    });
    const { scheduler, windows } = setUp({
      onWindowSpan: () => {
        throw new Error('broken hook');
      },
    });
    scheduler.open(0, 0);
    scheduler.close();
    expect(windows()).toHaveLength(1);
  });
});

describe('a scheduler that was forgotten', () => {
  test('has its window spans ended when it is collected, whoever traced it being gone too', async () => {
    const { windows, tracing, parent } = setUp();
    const forget = () => {
      const scheduler = new VerifyWindowScheduler({ depth: 2 });
      const tracerProvider = tracing.provider;
      new VerifyWindowTracer({ tracerProvider }).observe(scheduler, parent);
      scheduler.open(0, 0);
      scheduler.open(8, 0);
    };
    forget();
    await afterGarbageCollection(() => expect(windows()).toHaveLength(2));
    for (const { attributes, status } of windows()) {
      expect(attributes).toMatchObject({ [DROP_REASON]: 'closed', [IN_FLIGHT_AFTER]: 0 });
      expect(status).toEqual({ code: SpanStatusCode.UNSET });
    }
  });

  test('takes what is broken in the host with it, and the process lives on', async () => {
    const error = listenToDiag();
    const uncaught = vi.fn();
    process.on('uncaughtException', uncaught);
    const tracing = new Tracing({ processors: [brokenProcessor('onEnd')] });
    const parent = trace.setSpan(context.active(), tracing.tracer.startSpan('generation'));
    const forget = () => {
      const scheduler = new VerifyWindowScheduler({ depth: 2 });
      new VerifyWindowTracer({ tracerProvider: tracing.provider }).observe(scheduler, parent);
      scheduler.open(0, 0);
      scheduler.open(8, 0);
    };
    forget();
    await afterGarbageCollection(() => expect(tracing.spans(WINDOW)).toHaveLength(2));
    await new Promise(setImmediate);
    process.off('uncaughtException', uncaught);
    expect(uncaught).not.toHaveBeenCalled();
    expect(error).toHaveBeenCalledTimes(1);
  });
});

test('thousands of schedulers that were closed leave neither themselves nor a span behind', async () => {
  const tracerProvider = new Tracing().provider;
  const tracer = new VerifyWindowTracer({ tracerProvider });
  const left: WeakRef<object>[] = [];
  const generate = () => {
    const scheduler = new VerifyWindowScheduler({ depth: 2 });
    // A span that records, and that no exporter holds, as it does not end.
    const generation = tracerProvider.getTracer('host').startSpan('generation');
    const parent = trace.setSpan(context.active(), generation);
    tracer.observe(scheduler, parent);
    scheduler.completeNext(scheduler.open(0, 0).id);
    scheduler.close();
    left.push(new WeakRef(scheduler), new WeakRef(generation), new WeakRef(parent));
  };
  for (let i = 0; i < 3000; i++) generate();
  await afterGarbageCollection(() => {
    expect(left.filter((ref) => ref.deref() !== undefined)).toEqual([]);
  });
});

/** Waits until a garbage collection has had the effect, and fails in the end if none has. */
async function afterGarbageCollection(check: () => void): Promise<void> {
  const collect = () => {
    globalThis.gc?.();
    check();
  };
  await vi.waitFor(collect, { timeout: 4000 });
}

function ascending(a: bigint, b: bigint): number {
  return a < b ? -1 : Number(a > b);
}
