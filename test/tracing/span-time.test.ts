import { context, type Span, SpanKind, trace } from '@opentelemetry/api';
import { AggregationTemporality } from '@opentelemetry/sdk-metrics';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import * as METRICS from '../../semconv/metrics.js';
import {
  SPAN_LLAMA_STAGE_STAGE_COMPUTE as COMPUTE,
  SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE as FORWARD_WRITE,
  SPAN_LLAMA_STAGE_GENERATION as GENERATION,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW as STAGE_WINDOW,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW as WINDOW,
} from '../../semconv/spans.js';
import { PreaggregatedHistograms } from '../../src/histograms/index.js';
import {
  type Generation,
  injectTraceContext,
  PipelineTelemetry,
  type StartedStageWindow,
} from '../../src/index.js';
import { Collected, counterValues, ManualReader, providerWith } from '../metrics/collected.js';
import { isParent, nanoseconds, Tracing, useApi } from './sdk.js';

useApi();
afterEach(() => {
  vi.useRealTimers();
});

const MILLISECOND = 1_000_000n;

/** Both clocks of a process, and what becomes of them. */
class Clocks {
  /** Since 1970, with all its digits. */
  wallMs = 1_700_000_000_000.25;
  monotonicMs = 1234.5;
  /** How much faster the wall clock goes. */
  rate = 1;

  constructor() {
    vi.spyOn(Date, 'now').mockImplementation(() => Math.floor(this.wallMs));
    vi.spyOn(performance, 'now').mockImplementation(() => this.monotonicMs);
  }

  pass(ms: number): void {
    this.monotonicMs += ms;
    this.wallMs += ms * this.rate;
  }

  /** The wall clock is set, or the machine sleeps, while the other one stands. */
  step(ms: number): void {
    this.wallMs += ms;
  }
}

function setUp() {
  const tracing = new Tracing();
  return { tracing, telemetry: new PipelineTelemetry({ tracerProvider: tracing.provider }) };
}

const startOf = (span: ReadableSpan) => nanoseconds(span.startTime);
const endOf = (span: ReadableSpan) => nanoseconds(span.endTime);

function distance(left: bigint, right: bigint): bigint {
  return left > right ? left - right : right - left;
}

function expectSoundTimes(spans: readonly ReadableSpan[]): void {
  for (const { name, startTime, endTime, events } of spans) {
    for (const [seconds, nanos] of [startTime, endTime, ...events.map(({ time }) => time)]) {
      expect(Number.isSafeInteger(seconds) && Number.isSafeInteger(nanos), name).toBe(true);
      expect(nanos >= 0 && nanos < 1e9, name).toBe(true);
    }
    expect(nanoseconds(endTime) >= nanoseconds(startTime), name).toBe(true);
  }
}

/** That spans of one name lie within those of another that are above them. @returns how many. */
function expectWithin(tracing: Tracing, parentName: string, childName: string): number {
  const children = tracing.spans(childName);
  for (const child of children) {
    const parent = tracing.spans(parentName).find((span) => isParent(span, child));
    if (parent === undefined) throw new Error(`${childName} has no ${parentName}`);
    const what = `${childName} of ${parentName}`;
    expect(startOf(child) >= startOf(parent), `start of ${what}`).toBe(true);
    expect(endOf(child) <= endOf(parent), `end of ${what}`).toBe(true);
    for (const { time } of parent.events) {
      expect(nanoseconds(time) >= startOf(parent), 'event').toBe(true);
      expect(nanoseconds(time) <= endOf(parent), 'event').toBe(true);
    }
  }
  return children.length;
}

const action = fc.record({
  what: fc.constantFrom(
    ...['generation', 'open', 'open', 'complete', 'complete', 'discard', 'end generation'],
    ...['arrive', 'compute', 'write', 'batch', 'leave', 'step', 'slew', 'sleep', 'together'],
  ),
  passedMs: fc.oneof(
    fc.constantFrom(0, 0.001, 0.3, 0.999, 1, 17.3, 4000),
    fc.double({ min: 0, max: 5, noNaN: true }),
  ),
  stepMs: fc.constantFrom(-5000, 5000, -1.5, 1.5, 3_600_000, -3_600_000),
  which: fc.nat(5),
});

test('children stay within their parents, whatever becomes of the clocks', () => {
  fc.assert(
    fc.property(fc.array(action, { maxLength: 60, size: 'max' }), (actions) => {
      const clocks = new Clocks();
      const { tracing, telemetry } = setUp();
      const stage = telemetry.stage({ index: 1 });
      const parent = tracing.tracer.startSpan('request');
      const inside = trace.setSpan(context.active(), parent);
      const carrier = injectTraceContext(inside);
      const generations: Generation[] = [];
      const arrived: StartedStageWindow[] = [];
      const pick = <One>(all: One[], which: number) => all[which % all.length];

      for (const { what, passedMs, stepMs, which } of actions) {
        clocks.pass(passedMs);
        const generation = pick(generations, which);
        const window = pick(arrived, which);
        if (what === 'generation') {
          generations.push(context.with(inside, () => telemetry.generation({ depth: 3 }).start()));
        } else if (what === 'open' && generation?.scheduler.hasCapacity) {
          generation.scheduler.open(1, 1);
        } else if (what === 'complete' && (generation?.scheduler.inFlight ?? 0) > 0) {
          const { scheduler } = generation as Generation;
          scheduler.completeNext(scheduler.stats().opened - scheduler.inFlight + 1);
        } else if (what === 'discard' && generation?.scheduler.isClosed === false) {
          generation.scheduler.markRecoveryEpoch(generation.scheduler.inFlight);
          generation.scheduler.discardStale();
        } else if (what === 'end generation') generation?.end();
        else if (what === 'arrive') arrived.push(stage.startWindow(carrier));
        else if (what === 'compute') window?.compute(() => clocks.pass(passedMs));
        else if (what === 'write') window?.forwardWrite(() => clocks.step(stepMs));
        else if (what === 'batch') {
          stage.computeBatch(arrived.slice(-3), () => {
            clocks.pass(passedMs);
            window?.end();
            clocks.step(stepMs);
          });
        } else if (what === 'leave') window?.end();
        else if (what === 'step' || what === 'sleep') clocks.step(stepMs);
        else if (what === 'slew') clocks.rate = 1 + Math.sign(stepMs) * 500e-6;
        else if (what === 'together') expectAgreement(clocks, tracing, telemetry);
      }
      for (const generation of generations) generation.end();
      for (const window of arrived) window.end();
      parent.end();
      expectSoundTimes(tracing.spans());
      expectWithin(tracing, GENERATION, WINDOW);
      for (const phase of [COMPUTE, FORWARD_WRITE]) expectWithinUnlessLate(tracing, phase);
      vi.restoreAllMocks();
    }),
    { numRuns: 300 },
  );
});

/** A phase of a window that has ended is late, and has nothing to be within. */
function expectWithinUnlessLate(tracing: Tracing, phase: string): void {
  for (const child of tracing.spans(phase)) {
    const window = tracing.spans(STAGE_WINDOW).find((span) => isParent(span, child));
    if (window === undefined) throw new Error(`${phase} has no window`);
    const order = tracing.spans();
    if (order.indexOf(child) > order.indexOf(window)) continue;
    expect(startOf(child) >= startOf(window), phase).toBe(true);
    expect(endOf(child) <= endOf(window), phase).toBe(true);
  }
}

/** Spans of the SDK and ours that begin now say the same time, and ours not before the SDK's. */
function expectAgreement(clocks: Clocks, tracing: Tracing, telemetry: PipelineTelemetry): void {
  const server = tracing.tracer.startSpan('server', { kind: SpanKind.SERVER }) as Span &
    ReadableSpan;
  const inside = trace.setSpan(context.active(), server);
  const generation = context.with(inside, () => telemetry.generation({ depth: 1 }).start());
  const window = telemetry.stage({ index: 0 }).startWindow(injectTraceContext(inside));
  const client = tracing.tracer.startSpan(
    'client',
    { kind: SpanKind.CLIENT },
    generation.context,
  ) as Span & ReadableSpan;
  const ours = generation.span as Span & ReadableSpan;
  expect(startOf(ours) >= startOf(server)).toBe(true);
  expect(startOf(client) >= startOf(ours)).toBe(true);
  generation.scheduler.open(0, 0);
  clocks.pass(0.01);
  generation.scheduler.completeNext(1);
  client.end();
  generation.end();
  window.end();
  server.end();
  const stageWindow = tracing.spans(STAGE_WINDOW).at(-1) as ReadableSpan;
  const verifyWindow = tracing.spans(WINDOW).at(-1) as ReadableSpan;
  for (const span of [ours, client, stageWindow, verifyWindow]) {
    expect(distance(startOf(span), startOf(server)) <= MILLISECOND, span.name).toBe(true);
    // They end within 10 µs, and each to the millisecond.
    expect(distance(endOf(span), endOf(server)) <= MILLISECOND, span.name).toBe(true);
  }
}

describe('beside spans of the SDK', () => {
  test('no generation begins before its parent, wherever in a millisecond that is', () => {
    const fraction = fc.double({ min: 0, max: 0.999_999, noNaN: true });
    const gap = fc.double({ min: 0, max: 0.5, noNaN: true });
    fc.assert(
      fc.property(fc.array(fc.tuple(fraction, gap), { maxLength: 20 }), (requests) => {
        const clocks = new Clocks();
        const { tracing, telemetry } = setUp();
        for (const [at, gapMs] of requests) {
          clocks.pass(3 + at);
          tracing.tracer.startActiveSpan('server', (server) => {
            clocks.pass(gapMs);
            const generation = telemetry.generation({ depth: 1 }).start();
            clocks.pass(gapMs);
            context.with(generation.context, () => {
              tracing.tracer.startActiveSpan('client', (client) => {
                clocks.pass(gapMs);
                client.end();
              });
            });
            generation.end();
            server.end();
          });
        }
        for (const [above, below] of [
          ['server', GENERATION],
          [GENERATION, 'client'],
        ] as const) {
          for (const child of tracing.spans(below)) {
            const parent = tracing
              .spans(above)
              .find((span) => isParent(span, child)) as ReadableSpan;
            expect(startOf(child) >= startOf(parent), below).toBe(true);
            expect(endOf(child) <= endOf(parent) + MILLISECOND, below).toBe(true);
          }
        }
        vi.restoreAllMocks();
      }),
    );
  });

  test.each([-5000, 5000, 3_600_000])('spans that begin after a step by %i ms agree', (stepMs) => {
    const clocks = new Clocks();
    const { tracing, telemetry } = setUp();
    expectAgreement(clocks, tracing, telemetry);
    const under = telemetry.generation({ depth: 1 }).start();
    under.scheduler.open(0, 0);
    clocks.step(stepMs);
    expectAgreement(clocks, tracing, telemetry);
    clocks.pass(0.4);
    expectAgreement(clocks, tracing, telemetry);
    under.end();
    expectWithin(tracing, GENERATION, WINDOW);
    expectSoundTimes(tracing.spans());
  });

  test.each([1 + 500e-6, 1 - 500e-6])('a day at %d times the pace keeps them together', (rate) => {
    const clocks = new Clocks();
    const { tracing, telemetry } = setUp();
    clocks.rate = rate;
    for (let hour = 0; hour < 24; hour++) {
      clocks.pass(3_600_000.7);
      expectAgreement(clocks, tracing, telemetry);
    }
  });

  test('a long window ends as long after its start as it took, where the clock was set', () => {
    for (const stepMs of [-5000, 5000, 3_600_000]) {
      const clocks = new Clocks();
      const { tracing, telemetry } = setUp();
      const generation = telemetry.generation({ depth: 1 }).start();
      generation.scheduler.open(0, 0);
      clocks.pass(200);
      clocks.step(stepMs);
      clocks.pass(300);
      generation.scheduler.completeNext(1);
      generation.end();
      for (const name of [WINDOW, GENERATION]) {
        const span = tracing.span(name);
        expect(distance(endOf(span) - startOf(span), 500n * MILLISECOND) <= MILLISECOND).toBe(true);
      }
      vi.restoreAllMocks();
    }
  });
});

describe('fake timers', () => {
  const faked = fc.subarray(['Date', 'performance', 'setTimeout', 'hrtime'] as const);

  /** The package as it is before its first use. */
  async function fresh() {
    vi.resetModules();
    return import('../../src/index.js');
  }

  test('give no time that is none, installed before or after the first use, and taken away', async () => {
    const moment = fc.constantFrom('before', 'amid', 'after');
    const start = fc.constantFrom(0, 1, -86_400_000, 1_700_000_000_000);
    await fc.assert(
      fc.asyncProperty(faked, moment, moment, start, async (toFake, install, uninstall, fakeMs) => {
        const { PipelineTelemetry } = await fresh();
        const tracing = new Tracing();
        const reader = new ManualReader();
        const histograms = new PreaggregatedHistograms();
        const telemetry = new PipelineTelemetry({
          tracerProvider: tracing.provider,
          meterProvider: providerWith(reader),
          histograms,
        });
        const producer = histograms.producer();
        const at = (now: string) => {
          if (install === now) vi.useFakeTimers({ toFake: [...toFake], now: fakeMs });
          if (uninstall === now && install !== now) vi.useRealTimers();
        };
        const work = (during = () => {}) => {
          const generation = telemetry.generation({ depth: 2 }).start();
          const carrier = injectTraceContext(generation.context);
          const stage = telemetry.stage({ index: 0 });
          const window = stage.startWindow(carrier);
          generation.scheduler.open(0, 0);
          generation.tokensCommitted(1);
          window.compute(during);
          generation.tokensCommitted(1);
          generation.scheduler.open(1, 1);
          generation.scheduler.completeNext(1);
          generation.scheduler.markRecoveryEpoch(1);
          window.end();
          generation.end();
        };
        at('before');
        work();
        work(() => at('amid'));
        at('after');
        work();
        expectSoundTimes(tracing.spans());
        expect(expectWithin(tracing, GENERATION, WINDOW)).toBe(6);
        expect(expectWithin(tracing, STAGE_WINDOW, COMPUTE)).toBe(3);
        const { resourceMetrics } = await producer.collect();
        const collected = new Collected({ resourceMetrics, errors: [] });
        // Nothing that was measured is lost, though no time may have passed.
        expect(collected.count(METRICS.METRIC_GEN_AI_SERVER_REQUEST_DURATION)).toBe(3);
        expect(collected.count(METRICS.METRIC_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN)).toBe(3);
        expect(collected.count(METRICS.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION)).toBe(3);
        expect(collected.count(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION)).toBe(3);
        for (const value of counterValues(await reader.read()).values()) {
          expect(value >= 0 && Number.isFinite(value)).toBe(true);
        }
        vi.useRealTimers();
      }),
      { numRuns: 60 },
    );
  });
});

describe('metrics over a clock that steps back', () => {
  const step = fc.record({
    stepMs: fc.constantFrom(-5000, -1, 0, 1, 5000),
    monotonicMs: fc.constantFrom(-5000, 0, 0.3, 20),
    requests: fc.nat(3),
  });

  test.each([AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA])(
    'have points that begin before they end, and all requests (temporality %i)',
    async (temporality) => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
          const clocks = new Clocks();
          const histograms = new PreaggregatedHistograms();
          const producer = histograms.producer({ temporality });
          const meterProvider = providerWith(new ManualReader());
          const telemetry = new PipelineTelemetry({ meterProvider, histograms });
          const stage = telemetry.stage({ index: 0 });
          const name = METRICS.METRIC_GEN_AI_SERVER_REQUEST_DURATION;
          const compute = METRICS.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION;
          let requests = 0;
          let counted = 0;
          let phases = 0;
          let starts: bigint[] = [];
          for (const { stepMs, monotonicMs, requests: more } of steps) {
            for (let i = 0; i < more; i++) {
              const generation = telemetry.generation({ depth: 1 }).start();
              stage.startWindow({}).compute(() => {
                clocks.step(stepMs);
                clocks.monotonicMs += monotonicMs;
              });
              generation.end();
              requests++;
            }
            const { resourceMetrics } = await producer.collect();
            const collected = new Collected({ resourceMetrics, errors: [] });
            for (const metric of collected.names) {
              for (const { startTime, endTime } of collected.histogram(metric)) {
                expect(nanoseconds(startTime) <= nanoseconds(endTime), metric).toBe(true);
              }
            }
            const isDelta = temporality === AggregationTemporality.DELTA;
            counted = collected.count(name) + (isDelta ? counted : 0);
            phases = collected.count(compute) + (isDelta ? phases : 0);
            starts = collected.histogram(name).map((point) => nanoseconds(point.startTime));
          }
          expect([counted, phases]).toEqual([requests, requests]);
          if (temporality === AggregationTemporality.CUMULATIVE && starts.length > 0) {
            // Once the clock goes on, a point keeps its start: another one would be a restart.
            clocks.pass(1000);
            const { resourceMetrics } = await producer.collect();
            const [point] = new Collected({ resourceMetrics, errors: [] }).histogram(name);
            expect(point && nanoseconds(point.startTime)).toBe(starts[0]);
          }
          vi.restoreAllMocks();
        }),
        { numRuns: 60 },
      );
    },
  );
});
