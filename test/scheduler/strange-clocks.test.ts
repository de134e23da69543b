import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import * as METRICS from '../../semconv/metrics.js';
import { SPAN_LLAMA_STAGE_VERIFY_WINDOW as WINDOW } from '../../semconv/spans.js';
import {
  PipelineTelemetry,
  VerifyWindowError,
  type VerifyWindowObserver,
  VerifyWindowScheduler,
} from '../../src/index.js';
import {
  counterValues,
  expectNoneFell,
  expectOnePointForEachSeries,
  ManualReader,
  providerWith,
} from '../metrics/collected.js';
import { listenToDiag, Tracing, useApi } from '../tracing/sdk.js';

useApi();

const OPENED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const COMPLETED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED;
const DROPPED = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DROPPED;
const IN_FLIGHT = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT;

/** Metrics and spans of one process, with a sound scheduler beside those under test. */
function setUp() {
  const complain = listenToDiag();
  const tracing = new Tracing();
  const reader = new ManualReader();
  const telemetry = new PipelineTelemetry({
    tracerProvider: tracing.provider,
    meterProvider: providerWith(reader),
  });
  const observe = (scheduler: VerifyWindowScheduler) =>
    tracing.tracer.startActiveSpan('generation', (span) => {
      telemetry.observe(scheduler, { sound: scheduler === sound });
      span.end();
    });
  const sound = new VerifyWindowScheduler({ depth: 2, clock: () => 7 });
  observe(sound);
  sound.open(0, 0);
  return { complain, reader, sound, tracing, observe };
}

/** What an observer was told of each window: it was opened, and it left once. */
class Witness implements VerifyWindowObserver {
  readonly present = new Set<number>();
  readonly left = new Set<number>();
  closes = 0;
  /** What throws in an observer is not seen by its scheduler, nor by the test. */
  faults = 0;

  opened(_: VerifyWindowScheduler, { id }: { id: number }): void {
    if (this.present.has(id) || this.left.has(id)) this.faults++;
    this.present.add(id);
  }
  completed(_: VerifyWindowScheduler, { id }: { id: number }): void {
    this.#leave(id);
  }
  dropped(_: VerifyWindowScheduler, { id }: { id: number }): void {
    this.#leave(id);
  }
  closed(): void {
    this.closes++;
  }

  #leave(id: number): void {
    if (!this.present.delete(id)) this.faults++;
    this.left.add(id);
  }
}

function performing(scheduler: VerifyWindowScheduler, what: string): void {
  try {
    if (what === 'open') scheduler.open(0, 0);
    else if (what === 'complete') {
      scheduler.completeNext(scheduler.stats().opened - scheduler.inFlight + 1);
    } else if (what === 'discard') scheduler.discardStale();
    else if (what === 'close') scheduler.close();
  } catch (error) {
    if (!(error instanceof VerifyWindowError)) throw error;
  }
}

const call = fc.constantFrom('open', 'open', 'complete', 'discard', 'close');
const calls = fc.array(
  fc.constantFrom('open', 'open', 'open', 'complete', 'complete', 'discard', 'collect'),
  { maxLength: 30 },
);

/** That all is as if nothing strange had happened, once the scheduler has been closed. */
async function expectOrder(
  { complain, reader, sound, tracing }: ReturnType<typeof setUp>,
  scheduler: VerifyWindowScheduler,
  witness: Witness,
): Promise<void> {
  expect(scheduler.inFlight).toBe(0);
  expect(scheduler.isClosed).toBe(true);
  expect([...witness.present]).toEqual([]);
  expect([witness.closes, witness.faults]).toEqual([1, 0]);
  const { opened } = scheduler.stats();
  expect(witness.left.size).toBe(opened);
  const windows = tracing.spans(WINDOW);
  expect(windows).toHaveLength(opened);
  expect(new Set(windows.map(({ attributes }) => JSON.stringify(attributes))).size).toBe(opened);
  const collected = await reader.read();
  expectOnePointForEachSeries(collected);
  const of = (name: string, isSound: boolean) => collected.sum(name, { sound: isSound });
  expect(of(OPENED, false)).toBe(opened);
  expect(of(OPENED, false)).toBe(of(COMPLETED, false) + of(DROPPED, false));
  expect(of(IN_FLIGHT, false)).toBe(0);
  expect([of(OPENED, true), of(IN_FLIGHT, true)]).toEqual([1, 1]);
  const stats = scheduler.stats();
  for (const ms of stats.occupancyMsByDepth) expect(Number.isFinite(ms) && ms >= 0).toBe(true);
  sound.close();
  expect(complain).not.toHaveBeenCalled();
}

describe('a clock that breaks later on', () => {
  const reading = fc.oneof(
    fc.double(),
    fc.constantFrom<unknown>(Number.NaN, 1n, undefined, null, 'noon', Symbol('s'), {}),
    fc.constant('throws'),
  );

  test('leaves no window in flight, no span open, and the numbers of others alone', async () => {
    await fc.assert(
      fc.asyncProperty(calls, fc.infiniteStream(reading), async (all, readings) => {
        const world = setUp();
        let isBroken = false;
        const clock = () => {
          if (!isBroken) return 0;
          const { value } = readings.next();
          if (value === 'throws') throw new Error('no time');
          return value as number;
        };
        const scheduler = new VerifyWindowScheduler({ depth: 3, clock });
        const witness = new Witness();
        scheduler.subscribe(witness);
        world.observe(scheduler);
        isBroken = true;
        let last = new Map<string, number>();
        for (const what of all) {
          performing(scheduler, what);
          if (what === 'discard') expect(scheduler.inFlight).toBe(0);
          if (what !== 'collect') continue;
          last = expectNoneFell(counterValues(await world.reader.read()), last);
        }
        scheduler.close();
        await expectOrder(world, scheduler, witness);
      }),
    );
  });
});

describe('a clock that calls the scheduler', () => {
  test('finds and leaves it in order', async () => {
    await fc.assert(
      fc.asyncProperty(calls, fc.array(fc.option(call), { maxLength: 40 }), async (all, within) => {
        const world = setUp();
        let isBusy = true;
        let ms = 0;
        const clock = (): number => {
          ms++;
          const what = isBusy ? undefined : within.shift();
          if (typeof what !== 'string') return ms;
          isBusy = true;
          performing(scheduler, what);
          isBusy = false;
          return ms;
        };
        const scheduler: VerifyWindowScheduler = new VerifyWindowScheduler({ depth: 3, clock });
        isBusy = false;
        const witness = new Witness();
        scheduler.subscribe(witness);
        world.observe(scheduler);
        let last = new Map<string, number>();
        for (const what of all) {
          performing(scheduler, what);
          expect(scheduler.inFlight).toBe(witness.present.size);
          expect(scheduler.inFlight).toBeLessThanOrEqual(scheduler.depth);
          if (what !== 'collect') continue;
          last = expectNoneFell(counterValues(await world.reader.read()), last);
        }
        scheduler.close();
        await expectOrder(world, scheduler, witness);
      }),
    );
  });
});

describe('observers that call the scheduler while they are told', () => {
  const reaction = fc.record({
    on: fc.constantFrom('opened', 'completed', 'dropped', 'closed'),
    what: call,
    isFirst: fc.boolean(),
  });

  test('leave no window in flight, no span open, and everybody told', async () => {
    await fc.assert(
      fc.asyncProperty(calls, fc.array(reaction, { maxLength: 4 }), async (all, reactions) => {
        const world = setUp();
        const scheduler = new VerifyWindowScheduler({ depth: 3 });
        const witness = new Witness();
        const react = (isFirst: boolean) => {
          for (const { on, what, isFirst: isBefore } of reactions) {
            if (isBefore !== isFirst) continue;
            let left = 5;
            // A reaction to itself would have no end.
            const act = () => {
              if (left-- > 0) performing(scheduler, what);
            };
            scheduler.subscribe({ [on]: act });
          }
        };
        react(true);
        scheduler.subscribe(witness);
        world.observe(scheduler);
        react(false);
        for (const what of all) {
          performing(scheduler, what);
          expect(scheduler.inFlight).toBe(witness.present.size);
        }
        scheduler.close();
        await expectOrder(world, scheduler, witness);
      }),
    );
  });

  test.each(['close', 'complete', 'discard'])('to %s within opened is in order', async (what) => {
    const world = setUp();
    const scheduler = new VerifyWindowScheduler({ depth: 3 });
    const witness = new Witness();
    scheduler.subscribe({ opened: () => performing(scheduler, what) });
    scheduler.subscribe(witness);
    world.observe(scheduler);
    expect(scheduler.open(4, 2)).toEqual({ id: 1, basePosition: 4, decodeStep: 2 });
    expect(scheduler.inFlight).toBe(0);
    scheduler.close();
    await expectOrder(world, scheduler, witness);
  });
});
