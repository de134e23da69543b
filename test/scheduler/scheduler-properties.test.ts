import fc from 'fast-check';
import { expect, it } from 'vitest';
import { VerifyWindowError, VerifyWindowScheduler } from '../../src/index.js';
import { closeTo } from './close-to.js';
import { Model } from './model.js';
import { type Operation, operations, perform } from './operations.js';
import { Recorder } from './recorder.js';

const depths = fc.integer({ min: 1, max: 5 });
/** Some schedulers start so late that their ids run out. */
const firstIds = fc.oneof(fc.constant(1), fc.integer({ min: 2147483640, max: 2147483647 }));

/** A scheduler under a clock that the test moves, beside the model of it. */
class Pair {
  readonly scheduler: VerifyWindowScheduler;
  readonly model: Model;
  #nowMs = 1000;
  /** What the clock reads: NaN for as long as it has nothing to say. */
  #reading = this.#nowMs;

  constructor(depth: number, firstWindowId: number) {
    const clock = () => this.#reading;
    this.scheduler = new VerifyWindowScheduler({ depth, firstWindowId, clock });
    this.model = new Model(depth, firstWindowId, this.#nowMs);
  }

  /** Does the same to both, and gives what each answered. */
  perform(operation: Operation) {
    if (operation.name === 'clock') {
      const movedMs = this.#nowMs + operation.stepMs;
      if (!Number.isNaN(movedMs)) this.#nowMs = movedMs;
      this.#reading = movedMs;
    }
    const { oldestId } = this.model;
    return {
      expected: this.model.perform(operation, this.#reading),
      actual: attempt(() => perform(this.scheduler, operation, oldestId)),
    };
  }

  expectedStats() {
    return this.model.stats(this.#reading);
  }
}

function attempt(call: () => unknown): { value: unknown } | { code: string } {
  try {
    return { value: call() };
  } catch (error) {
    if (error instanceof VerifyWindowError) return { code: error.code };
    throw error;
  }
}

/** Everything that a scheduler shows, apart from what depends on the clock's present reading. */
function countsOf({ tally, depth, inFlight, hasCapacity, isClosed }: VerifyWindowScheduler) {
  return structuredClone({ ...tally, depth, inFlight, hasCapacity, isClosed });
}

/** Every number in a nested structure, with the path to it. */
function numbersIn(value: unknown, path = ''): [path: string, number][] {
  if (typeof value === 'number') return [[path, value]];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, item]) => numbersIn(item, `${path}.${key}`));
}

function total(counts: Readonly<Record<string, number>> | readonly number[]): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

it('answers, counts and tells as the model does', () => {
  fc.assert(
    fc.property(depths, firstIds, operations(), (depth, firstId, sequence) => {
      const pair = new Pair(depth, firstId);
      const { scheduler, model } = pair;
      const recorder = new Recorder();
      const told: unknown[] = [];
      let unsubscribe: (() => void) | undefined;

      for (const operation of sequence) {
        if (operation.name === 'subscribe') unsubscribe ??= scheduler.subscribe(recorder);
        if (operation.name === 'unsubscribe') {
          unsubscribe?.();
          unsubscribe = undefined;
        }
        const known = model.events.length;
        const { expected, actual } = pair.perform(operation);
        if (unsubscribe !== undefined) told.push(...model.events.slice(known));

        expect(actual).toStrictEqual(expected);
        const expectedStats = pair.expectedStats();
        expect(closeTo(scheduler.stats(), expectedStats)).toStrictEqual(expectedStats);
        expect(scheduler).toMatchObject({
          inFlight: model.queue.length,
          hasCapacity: !model.isClosed && model.queue.length < depth,
          staleDiscarded: model.staleDiscarded,
          isClosed: model.isClosed,
          depth,
        });
        expect(scheduler.supportsPipelining(4)).toBe(depth > 1);
      }

      const { tally } = scheduler;
      for (const verdict of Object.keys(tally.completed)) {
        expect(tally.completed).toHaveProperty(verdict, model.count('completed', verdict));
      }
      for (const reason of Object.keys(tally.dropped)) {
        expect(tally.dropped).toHaveProperty(reason, model.count('dropped', reason));
      }
      for (const code of Object.keys(tally.errors)) {
        expect(tally.errors).toHaveProperty(code, model.count('refused', code));
      }
      expect(tally.proposedTokens).toBe(model.proposedTokens);
      expect(tally.acceptedTokens).toBe(model.acceptedTokens);
      expect(tally.directReturns.upstream_opened).toBe(Number(model.returns.includes(true)));
      expect(tally.directReturns.reverse_fallback).toBe(Number(model.returns.includes(false)));
      expect(recorder.events).toStrictEqual(told);
      expect(recorder.failures).toEqual([]);
      expect([...recorder.schedulers]).toEqual(told.length > 0 ? [scheduler] : []);
    }),
    { numRuns: 300 },
  );
});

it('retires windows in the order in which it admitted them, and loses none', () => {
  fc.assert(
    fc.property(depths, operations(), (depth, sequence) => {
      const pair = new Pair(depth, 1);
      const recorder = new Recorder();
      pair.scheduler.subscribe(recorder);
      for (const operation of sequence) {
        pair.perform(operation);
        const { tally } = pair.scheduler;
        expect(tally.opened).toBe(
          total(tally.completed) + total(tally.dropped) + pair.scheduler.inFlight,
        );
        expect(pair.scheduler.inFlight).toBeLessThanOrEqual(depth);
      }
      const windows = (...kinds: string[]) =>
        recorder.events.flatMap((event) => (kinds.includes(event[0]) ? [event[1]] : []));
      const retired = windows('completed', 'dropped');
      expect(retired).toEqual(windows('opened').slice(0, retired.length));
    }),
  );
});

it('changes nothing but the count of errors when it refuses a call', () => {
  fc.assert(
    fc.property(depths, firstIds, operations(), (depth, firstId, sequence) => {
      const pair = new Pair(depth, firstId);
      for (const operation of sequence) {
        const statsBefore = pair.scheduler.stats();
        const { errors: errorsBefore, ...before } = countsOf(pair.scheduler);
        const { actual } = pair.perform(operation);
        const { errors, ...after } = countsOf(pair.scheduler);
        if ('code' in actual) {
          expect(after).toEqual(before);
          expect(pair.scheduler.stats()).toEqual(statsBefore);
          const code = actual.code as keyof typeof errors;
          expect(errors).toEqual({ ...errorsBefore, [code]: errorsBefore[code] + 1 });
        } else {
          expect(errors).toEqual(errorsBefore);
        }
      }
    }),
  );
});

it('never lets a counter fall, and keeps within what doubles can count', () => {
  fc.assert(
    fc.property(depths, operations(), (depth, sequence) => {
      const pair = new Pair(depth, 1);
      let before = new Map<string, number>();
      for (const operation of sequence) {
        pair.perform(operation);
        const { inFlight: _, ...counters } = countsOf(pair.scheduler);
        for (const [path, value] of numbersIn(counters)) {
          expect(value, path).toBeGreaterThanOrEqual(before.get(path) ?? 0);
          expect(value, path).toBeLessThanOrEqual(Number.MAX_SAFE_INTEGER);
        }
        before = new Map(numbersIn(counters));
      }
    }),
  );
});

it('never lets a statistic fall while the clock does not', () => {
  fc.assert(
    fc.property(depths, operations({ clock: 'forwards' }), (depth, sequence) => {
      const pair = new Pair(depth, 1);
      let before = new Map<string, number>();
      for (const operation of sequence) {
        pair.perform(operation);
        const statistics = numbersIn(pair.scheduler.stats()).filter(
          ([path]) => !/Fraction|Average/.test(path),
        );
        for (const [path, value] of statistics) {
          expect(value, path).toBeGreaterThanOrEqual(before.get(path) ?? 0);
        }
        before = new Map(statistics);
      }
    }),
  );
});

it('spends its whole life, and no more, at some number of windows in flight', () => {
  fc.assert(
    fc.property(depths, operations({ clock: 'forwards' }), (depth, sequence) => {
      const pair = new Pair(depth, 1);
      let livedMs = 0;
      for (const operation of sequence) {
        if (operation.name === 'clock' && !pair.scheduler.isClosed) livedMs += operation.stepMs;
        pair.perform(operation);
        const stats = pair.scheduler.stats();
        expect(stats.occupancyMsByDepth).toHaveLength(depth + 1);
        expect(total(stats.occupancyMsByDepth)).toBe(livedMs);
        expect(stats.occupancyTotalMs).toBe(livedMs);
        expect(stats.occupancyParallelMs).toBe(total(stats.occupancyMsByDepth.slice(2)));
        expect(stats.occupancyFullMs).toBe(stats.occupancyMsByDepth[depth]);
      }
    }),
  );
});

it('is not changed by being read', () => {
  fc.assert(
    fc.property(depths, firstIds, operations(), (depth, firstId, sequence) => {
      const read = new Pair(depth, firstId);
      const unread = new Pair(depth, firstId);
      for (const operation of sequence) {
        const before = countsOf(read.scheduler);
        const stats = read.scheduler.stats();
        const kept = structuredClone(stats);
        expect(read.scheduler.stats()).toEqual(stats);
        expect(countsOf(read.scheduler)).toEqual(before);
        read.perform(operation);
        unread.perform(operation);
        // A snapshot is plain data, and stays what it was.
        expect(stats).toStrictEqual(kept);
      }
      expect(countsOf(read.scheduler)).toEqual(countsOf(unread.scheduler));
      expect(read.scheduler.stats()).toEqual(unread.scheduler.stats());
    }),
  );
});
