import fc from 'fast-check';
import { expect, test } from 'vitest';
import * as METRICS from '../../semconv/metrics.js';
import { VerifyWindowMetrics, VerifyWindowScheduler } from '../../src/index.js';
import {
  type Collected,
  counterValues,
  expectNoneFell,
  ManualReader,
  providerWith,
} from './collected.js';

/** A scheduler under a clock that the test moves, and what it takes to call it rightly. */
class Generation {
  readonly scheduler: VerifyWindowScheduler;
  readonly #bornMs: number;
  readonly #clock: { ms: number };
  readonly #expected: number[] = [];

  constructor(depth: number, clock: { ms: number }) {
    this.scheduler = new VerifyWindowScheduler({ depth, clock: () => clock.ms });
    this.#bornMs = clock.ms;
    this.#clock = clock;
  }

  get lifetimeMs(): number {
    return this.#clock.ms - this.#bornMs;
  }

  act(action: string): void {
    const { scheduler } = this;
    if (action === 'open' && scheduler.hasCapacity) this.#expected.push(scheduler.open(1, 1).id);
    const [reply] = this.#expected;
    if (action === 'complete' && reply !== undefined) {
      scheduler.completeNext(reply, { proposedTokens: 3, acceptedTokens: reply % 4 });
      this.#expected.shift();
    }
    if (action === 'discard') this.#expected.splice(0, scheduler.discardStale());
    if (action === 'wrong reply') expect(() => scheduler.completeNext(-1)).toThrow();
    if (action === 'recover') {
      scheduler.markRecoveryEpoch(scheduler.inFlight);
      scheduler.recordStaleDiscarded(1, 0.7);
    }
  }
}

const step = fc.record({
  which: fc.nat(5),
  action: fc.constantFrom(
    ...['create', 'create', 'open', 'open', 'open', 'complete', 'complete', 'discard'],
    ...['recover', 'wrong reply', 'close', 'collect', 'collect'],
  ),
  // Decimal fractions, whose sums depend on their order.
  passedMs: fc.constantFrom(0, 0.1, 0.2, 0.3, 1.7, 12.34, 1e6),
});

test('the invariants hold at random moments of random workloads', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 100 }), async (steps) => {
      const cumulative = new ManualReader();
      const delta = ManualReader.delta();
      const provider = providerWith(cumulative, delta);
      const bridge = new VerifyWindowMetrics({ meterProvider: provider });
      const clock = { ms: 0 };
      const live: Generation[] = [];
      let endedMs = 0;
      let last = new Map<string, number>();
      const deltas = new Map<string, number>();

      for (const { which, action, passedMs } of [
        ...steps,
        { which: 0, action: 'collect', passedMs: 0.1 },
      ]) {
        clock.ms += passedMs;
        if (action === 'create') {
          const generation = new Generation(1 + which, clock);
          bridge.observe(generation.scheduler, { set: which % 2 });
          live.push(generation);
        } else if (action === 'close') {
          for (const generation of live.splice(which, 1)) {
            endedMs += generation.lifetimeMs;
            generation.scheduler.close();
          }
        } else if (action === 'collect') {
          const collected = await cumulative.read();
          const aliveMs = live.reduce((ms, generation) => ms + generation.lifetimeMs, 0);
          expectInvariants(collected, endedMs + aliveMs);
          last = expectNoneFell(counterValues(collected), last);
          for (const [series, value] of counterValues(await delta.read())) {
            expect(value, series).toBeGreaterThanOrEqual(0);
            deltas.set(series, (deltas.get(series) ?? 0) + value);
          }
        } else {
          live[which % live.length]?.act(action);
        }
      }

      for (const [series, value] of last) {
        const tolerance = 1e-9 * Math.max(1, value);
        expect(Math.abs((deltas.get(series) ?? 0) - value), series).toBeLessThan(tolerance);
      }
      for (const { scheduler } of live) scheduler.close();
    }),
    { numRuns: 100 },
  );
});

test('no counter falls by a rounding digit when schedulers end in another order', async () => {
  const lifetimes = fc.array(fc.double({ min: 0.001, max: 1e4, noNaN: true }), {
    minLength: 3,
    maxLength: 8,
  });
  await fc.assert(
    fc.asyncProperty(lifetimes, fc.infiniteStream(fc.nat()), async (durationsMs, order) => {
      const reader = new ManualReader();
      const bridge = new VerifyWindowMetrics({ meterProvider: providerWith(reader) });
      const live = durationsMs.map((durationMs) => {
        let ms = 0;
        const scheduler = new VerifyWindowScheduler({ depth: 1, clock: () => ms });
        bridge.observe(scheduler);
        scheduler.recordStaleDiscarded(1, durationMs);
        ms = durationMs;
        return scheduler;
      });
      let last = counterValues(await reader.read());
      while (live.length > 0) {
        live.splice(order.next().value % live.length, 1)[0]?.close();
        last = expectNoneFell(counterValues(await reader.read()), last);
      }
    }),
  );
});

function expectInvariants(collected: Collected, lifetimeMs: number): void {
  const sum = (name: string) => collected.sum(name);
  expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED)).toBe(
    sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED) +
      sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED) +
      sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT),
  );
  const occupancy = sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME);
  const rounding = 1e-9 * Math.max(1, occupancy);
  expect(Math.abs(occupancy - lifetimeMs / 1000)).toBeLessThan(rounding);
  for (const part of [
    METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME,
    METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME,
  ]) {
    expect(sum(part)).toBeLessThanOrEqual(occupancy + rounding);
  }
  expect(sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT)).toBeLessThanOrEqual(
    sum(METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY),
  );
}
