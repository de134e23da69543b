import { type Context, trace } from '@opentelemetry/api';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT,
} from '../semconv/index.js';
import type { VerifyWindowScheduler } from '../src/index.js';
import { cleanUp, Host } from './host.js';
import {
  type Collected,
  counterValues,
  expectNoneFell,
  expectOnePointForEachSeries,
} from './metrics/collected.js';
import { useApi } from './tracing/sdk.js';

const OPENED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const COMPLETED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED;
const DROPPED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED;
const IN_FLIGHT = METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT;
const SCHEDULERS = METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT;

useApi();

const action = fc.record({
  what: fc.constantFrom(
    ...['make', 'make', 'observe', 'observe', 'trace', 'enable', 'enable', 'disable'],
    ...['open', 'open', 'open', 'open', 'complete', 'complete', 'close', 'collect', 'collect'],
  ),
  which: fc.nat(3),
  who: fc.nat(1),
});

test('a scheduler is counted once and traced once, whatever is enabled, disabled and observed', async () => {
  const actions = fc.array(action, { maxLength: 60, size: 'max' });
  await fc.assert(
    fc
      .asyncProperty(actions, fc.boolean(), async (sequence, areSetsApart) => {
        const world = new World(areSetsApart);
        const all = { which: 0, who: 0 };
        for (const step of sequence) await world.act(step);
        await world.act({ ...all, what: 'enable' });
        await world.act({ ...all, who: 1, what: 'enable' });
        await world.act({ ...all, what: 'collect' });
        world.expectSpans();
      })
      .afterEach(cleanUp),
    { numRuns: 200 },
  );
});

/** One scheduler, and what must be known of it. */
interface Expected {
  readonly scheduler: VerifyWindowScheduler;
  readonly parent: Context;
  /** Whether somebody has counted it at any time. */
  isCounted: boolean;
  /** Whether a bridge counted it first: then no instrumentation has ever held any of it. */
  isGiven: boolean;
  isTraced: boolean;
  spans: number;
}

/** Two of everything that observes, at work on the same schedulers. */
class World {
  readonly #host = new Host();
  readonly #numbers = new Map<VerifyWindowScheduler, number>();
  readonly #all: Expected[] = [];
  readonly #areSetsApart: boolean;
  readonly #bridges = [this.#host.bridge(), this.#host.bridge()];
  readonly #tracers = [this.#host.tracer(), this.#host.tracer()];
  readonly #instrumentations = ['X', 'Y'].map((by) =>
    this.#host.instrumentation({
      metricAttributes: (scheduler) => this.#attributes(scheduler, by),
      maxAttributeSets: 1000,
    }),
  );
  readonly #enabled = [false, false];
  #last = new Map<string, number>();
  #lastOpened = 0;

  /** @param areSetsApart whether each who counts has attributes of its own. */
  constructor(areSetsApart: boolean) {
    this.#areSetsApart = areSetsApart;
  }

  async act({ what, which, who }: { what: string; which: number; who: number }): Promise<void> {
    if (what === 'make') this.#make();
    if (what === 'enable') this.#enable(who);
    if (what === 'disable') {
      this.#instrumentations[who]?.disable();
      this.#enabled[who] = false;
    }
    if (what === 'collect') await this.#collect();
    // The latest ones, so that there is always one with room.
    const expected = this.#all.at(-1 - which);
    if (expected === undefined) return;
    this.#use(expected, what, who);
  }

  expectSpans(): void {
    for (const { scheduler } of this.#all) scheduler.close();
    const { windows } = this.#host;
    expect(new Set(windows).size).toBe(windows.length);
    for (const { parent, spans } of this.#all) {
      const traceId = trace.getSpanContext(parent)?.traceId ?? '';
      expect(windows.filter((window) => window.startsWith(traceId))).toHaveLength(spans);
    }
  }

  #attributes(scheduler: VerifyWindowScheduler, by: string) {
    // An instrumentation asks from inside of the constructor, before anybody else knows it.
    const number = this.#numbers.get(scheduler) ?? this.#numbers.size;
    this.#numbers.set(scheduler, number);
    return { number, ...(this.#areSetsApart && { by }) };
  }

  #make(): void {
    const parent = this.#host.generation();
    const scheduler = this.#host.scheduler(parent);
    const isFound = this.#enabled.includes(true);
    this.#all.push({
      ...{ scheduler, parent, spans: 0, isGiven: false },
      ...{ isCounted: isFound, isTraced: isFound },
    });
  }

  #enable(who: number): void {
    this.#instrumentations[who]?.enable();
    this.#enabled[who] = true;
    for (const expected of this.#all) expected.isCounted ||= !expected.scheduler.isClosed;
  }

  #use(expected: Expected, what: string, who: number): void {
    const { scheduler, parent } = expected;
    if (what === 'observe') {
      this.#bridges[who]?.observe(scheduler, this.#attributes(scheduler, 'AB'.charAt(who)));
      expected.isGiven ||= !expected.isCounted;
      expected.isCounted = true;
    }
    if (what === 'trace') {
      this.#tracers[who]?.observe(scheduler, parent);
      expected.isTraced = true;
    }
    if (what === 'open' && scheduler.hasCapacity) {
      scheduler.open(0, 0);
      if (expected.isTraced) expected.spans++;
    }
    if (what === 'complete' && scheduler.inFlight > 0) {
      scheduler.completeNext(1 + scheduler.tally.opened - scheduler.inFlight);
    }
    if (what === 'close') scheduler.close();
  }

  async #collect(): Promise<void> {
    const collected = await this.#host.reader.read();
    expectOnePointForEachSeries(collected);
    this.#last = expectNoneFell(counterValues(collected), this.#last);
    for (const expected of this.#all) this.#expectCounts(collected, expected);
    const opened = collected.sum(OPENED);
    expect((await this.#host.delta.read()).sum(OPENED)).toBe(opened - this.#lastOpened);
    this.#lastOpened = opened;
  }

  #expectCounts(collected: Collected, { scheduler, isCounted, isGiven }: Expected): void {
    const attributes = { number: this.#numbers.get(scheduler) ?? -1 };
    const sum = (name: string) => collected.sum(name, attributes);
    const all = isCounted ? scheduler.tally.opened : 0;
    const live = isCounted && !scheduler.isClosed ? 1 : 0;
    expect(sum(OPENED)).toBeLessThanOrEqual(all);
    expect(sum(SCHEDULERS)).toBeLessThanOrEqual(live);
    // An instrumentation that is disabled holds back what it has counted since.
    if (!isGiven && this.#enabled.includes(false)) return;
    expect(sum(OPENED)).toBe(all);
    expect(sum(SCHEDULERS)).toBe(live);
    expect(sum(IN_FLIGHT)).toBe(scheduler.inFlight * live);
    expect(sum(COMPLETED) + sum(DROPPED) + sum(IN_FLIGHT)).toBe(all);
  }
}
