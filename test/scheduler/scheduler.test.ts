import { describe, expect, it, vi } from 'vitest';
import {
  MAX_DEPTH,
  type StaleExecution,
  VerifyWindowError,
  VerifyWindowScheduler,
  type VerifyWindowSchedulerOptions,
  type WindowOutcome,
} from '../../src/index.js';

const MAX = Number.MAX_SAFE_INTEGER;

/** A scheduler of depth 2 unless told, under a clock that stands still until it is moved. */
function create(options: Partial<VerifyWindowSchedulerOptions> = {}) {
  const clock = { ms: 0 };
  const scheduler = new VerifyWindowScheduler({ depth: 2, clock: () => clock.ms, ...options });
  return { scheduler, clock };
}

function refusal(call: () => unknown): VerifyWindowError {
  try {
    call();
  } catch (error) {
    if (error instanceof VerifyWindowError) return error;
    throw error;
  }
  throw new Error('was not refused');
}

function stale(execution: Partial<StaleExecution> = {}): StaleExecution {
  return {
    drainMs: 0,
    stage0ComputeMs: 0,
    forwardWriteMs: 0,
    downstreamWaitMs: 0,
    verifyElapsedMs: 0,
    ...execution,
  };
}

describe('a new scheduler', () => {
  it('is empty', () => {
    const { scheduler } = create({ depth: 3 });
    expect(scheduler).toMatchObject({
      depth: 3,
      inFlight: 0,
      hasCapacity: true,
      staleDiscarded: 0,
      isClosed: false,
    });
    expect(scheduler.stats()).toMatchObject({
      depth: 3,
      opened: 0,
      occupancyMsByDepth: [0, 0, 0, 0],
      occupancyParallelFraction: 0,
      occupancyAverageInFlight: 0,
      directReturnUpstreamOpened: false,
      directReturnReverseFallback: false,
    });
  });

  it.each([
    [0, 1],
    [-5, 1],
    [1, 1],
    [MAX_DEPTH, MAX_DEPTH],
  ])('of depth %d holds %d', (depth, holds) => {
    const { scheduler } = create({ depth });
    expect(scheduler.depth).toBe(holds);
    for (let opened = 0; opened < holds; opened++) scheduler.open(opened, opened);
    expect(scheduler.hasCapacity).toBe(false);
    expect(scheduler.stats().occupancyMsByDepth).toHaveLength(holds + 1);
  });

  it.each([
    [{ depth: 1.5 }, 'depth must be an integer up to 1024, got 1.5'],
    [{ depth: Number.NaN }, 'depth must be an integer up to 1024, got NaN'],
    [{ depth: Number.POSITIVE_INFINITY }, 'depth must be an integer up to 1024, got Infinity'],
    [{ depth: Number.NEGATIVE_INFINITY }, 'depth must be an integer up to 1024, got -Infinity'],
    [{ depth: 1025 }, 'depth must be an integer up to 1024, got 1025'],
    [{ depth: '4' as never }, 'depth must be an integer up to 1024, got a value of type string'],
    [
      { depth: Symbol('4') as never },
      'depth must be an integer up to 1024, got a value of type symbol',
    ],
    [{ clock: 12 as never }, 'clock must be a function, got 12'],
    [{ firstWindowId: -1 }, 'firstWindowId must be an integer from 0 to 2147483647, got -1'],
    [{ firstWindowId: 0.5 }, 'firstWindowId must be an integer from 0 to 2147483647, got 0.5'],
    [
      { firstWindowId: 2147483648 },
      'firstWindowId must be an integer from 0 to 2147483647, got 2147483648',
    ],
    [
      { firstWindowId: Number.NaN },
      'firstWindowId must be an integer from 0 to 2147483647, got NaN',
    ],
  ])('is not made from %o', (options, message) => {
    const error = refusal(() => create(options));
    expect(error).toMatchObject({ name: 'VerifyWindowError', code: 'invalid_argument', message });
    expect(error).toBeInstanceOf(Error);
  });

  it('takes its time from performance.now where no clock is given', () => {
    const now = vi.spyOn(performance, 'now').mockReturnValue(100);
    try {
      const scheduler = new VerifyWindowScheduler({ depth: 1 });
      now.mockReturnValue(107);
      expect(scheduler.stats().occupancyMsByDepth).toEqual([7, 0]);
    } finally {
      now.mockRestore();
    }
  });
});

describe('a refused call', () => {
  it.each<[string, (scheduler: VerifyWindowScheduler) => unknown, string, string]>([
    [
      'open at a negative position',
      (scheduler) => scheduler.open(-1, 0),
      'invalid_argument',
      'basePosition must be a non-negative safe integer, got -1',
    ],
    [
      'open at half a position',
      (scheduler) => scheduler.open(1.5, 0),
      'invalid_argument',
      'basePosition must be a non-negative safe integer, got 1.5',
    ],
    [
      'open at a position of the wrong type',
      (scheduler) => scheduler.open('7' as never, 0),
      'invalid_argument',
      'basePosition must be a non-negative safe integer, got a value of type string',
    ],
    [
      'open at step NaN',
      (scheduler) => scheduler.open(0, Number.NaN),
      'invalid_argument',
      'decodeStep must be a non-negative safe integer, got NaN',
    ],
    [
      'open at a step that doubles cannot tell from its neighbour',
      (scheduler) => scheduler.open(0, 2 ** 53),
      'invalid_argument',
      'decodeStep must be a non-negative safe integer, got 9007199254740992',
    ],
    [
      'open without a step',
      (scheduler) => scheduler.open(0, undefined as never),
      'invalid_argument',
      'decodeStep must be a non-negative safe integer, got nothing',
    ],
    [
      'open beyond the depth',
      (scheduler) => scheduler.open(0, 0),
      'depth_exceeded',
      'verify window pipeline depth exceeded',
    ],
    [
      'a reply to a later window',
      (scheduler) => scheduler.completeNext(2),
      'reply_out_of_order',
      'verify window reply out of order: got 2, expected 1',
    ],
    [
      'a reply with no id',
      (scheduler) => scheduler.completeNext(undefined as never),
      'reply_out_of_order',
      'verify window reply out of order: got nothing, expected 1',
    ],
    ...(
      [
        { proposedTokens: 1, acceptedTokens: 2 },
        { proposedTokens: -1, acceptedTokens: -1 },
        { proposedTokens: 1.5, acceptedTokens: 1 },
        { proposedTokens: 4, acceptedTokens: Number.NaN },
        { proposedTokens: Number.POSITIVE_INFINITY, acceptedTokens: 1 },
        { proposedTokens: 4 },
        { stale: false },
        {},
        'stale',
        null,
      ] as WindowOutcome[]
    ).map(
      (outcome) =>
        [
          `a reply with the outcome ${JSON.stringify(outcome)}`,
          (scheduler: VerifyWindowScheduler) => scheduler.completeNext(1, outcome),
          'invalid_argument',
          'outcome must be { stale: true }, or have integers with 0 <= acceptedTokens <= proposedTokens',
        ] as [string, () => unknown, string, string],
    ),
    [
      'a stale execution that is none',
      (scheduler) => scheduler.recordStaleExecution(null as never),
      'invalid_argument',
      'execution must be an object with durations, got null',
    ],
    [
      'a count of the wrong type',
      (scheduler) => scheduler.markStale(Symbol('1') as never),
      'invalid_argument',
      'staleCount must be a non-negative safe integer, got a value of type symbol',
    ],
    [
      'a count below zero of discarded windows',
      (scheduler) => scheduler.recordStaleDiscarded(-1, 5),
      'invalid_argument',
      'count must be a non-negative safe integer, got -1',
    ],
    [
      'a recovery epoch with half a window',
      (scheduler) => scheduler.markRecoveryEpoch(0.5),
      'invalid_argument',
      'staleCount must be a non-negative safe integer, got 0.5',
    ],
    [
      'infinitely many stale windows',
      (scheduler) => scheduler.markStale(Number.POSITIVE_INFINITY),
      'invalid_argument',
      'staleCount must be a non-negative safe integer, got Infinity',
    ],
    [
      'a refill of less than nothing',
      (scheduler) => scheduler.recordHorizonRefill(-3),
      'invalid_argument',
      'appendedTokens must be a non-negative safe integer, got -3',
    ],
  ])('%s says what is wrong, and changes nothing', (_, call, code, message) => {
    const { scheduler } = create();
    scheduler.open(10, 1);
    scheduler.open(20, 2);
    const before = scheduler.stats();
    expect(refusal(() => call(scheduler))).toMatchObject({ code, message });
    expect(scheduler.stats()).toEqual(before);
    expect(scheduler.inFlight).toBe(2);
    expect(scheduler.tally.errors).toHaveProperty(code, 1);
    expect(scheduler.completeNext(1)).toEqual({ id: 1, basePosition: 10, decodeStep: 1 });
  });

  it('of a reply to nothing says so', () => {
    const { scheduler } = create();
    const error = refusal(() => scheduler.completeNext(1));
    expect(error.code).toBe('reply_without_window');
    expect(error.message).toBe('verify window reply arrived with no in-flight window');
  });

  it('can be made again in the right way', () => {
    const { scheduler } = create({ depth: 1 });
    scheduler.open(0, 0);
    refusal(() => scheduler.open(1, 1));
    scheduler.completeNext(1);
    expect(scheduler.open(1, 1).id).toBe(2);
  });
});

describe('window ids', () => {
  it('count up from the first', () => {
    const { scheduler } = create({ firstWindowId: 0 });
    expect([scheduler.open(0, 0).id, scheduler.open(0, 0).id]).toEqual([0, 1]);
    scheduler.discardStale();
    expect(scheduler.open(0, 0).id).toBe(2);
  });

  it('end before 2147483647', () => {
    const { scheduler } = create({ firstWindowId: 2147483646 });
    expect(scheduler.open(0, 0).id).toBe(2147483646);
    const error = refusal(() => scheduler.open(0, 0));
    expect(error.code).toBe('id_overflow');
    expect(error.message).toBe('verify window id overflow');
    expect(scheduler.completeNext(2147483646).id).toBe(2147483646);
    expect(refusal(() => scheduler.open(0, 0)).code).toBe('id_overflow');
    expect(scheduler.stats().opened).toBe(1);
  });

  it('do not depend on what the caller does to its windows', () => {
    const { scheduler } = create();
    const window = scheduler.open(0, 0) as { id: number };
    scheduler.open(0, 0);
    window.id = 99;
    expect(refusal(() => scheduler.completeNext(99)).message).toContain('expected 1');
    expect(scheduler.completeNext(1)).toBe(window);
    expect(scheduler.completeNext(2).id).toBe(2);
  });
});

describe('the verdict', () => {
  it.each<[WindowOutcome | undefined, string, number, number]>([
    [undefined, 'unverified', 0, 0],
    [{ stale: true }, 'stale', 0, 0],
    [{ proposedTokens: 0, acceptedTokens: 0 }, 'unverified', 0, 0],
    [{ proposedTokens: 4, acceptedTokens: 0 }, 'reject', 4, 0],
    [{ proposedTokens: 4, acceptedTokens: 3 }, 'partial_accept', 4, 3],
    [{ proposedTokens: 4, acceptedTokens: 4 }, 'full_accept', 4, 4],
    [{ proposedTokens: 4, acceptedTokens: 4, stale: false }, 'full_accept', 4, 4],
    [{ proposedTokens: 4, acceptedTokens: 4, stale: true } as never, 'stale', 0, 0],
  ])('on %o is %s', (outcome, verdict, proposedTokens, acceptedTokens) => {
    const { scheduler } = create();
    scheduler.open(0, 0);
    scheduler.completeNext(1, outcome);
    expect(scheduler.tally).toMatchObject({
      completed: { [verdict]: 1 },
      proposedTokens,
      acceptedTokens,
    });
    expect(Object.values(scheduler.tally.completed).sort()).toEqual([0, 0, 0, 0, 1]);
  });
});

describe('time', () => {
  it('is booked by the number of windows in flight', () => {
    const { scheduler, clock } = create();
    clock.ms = 1;
    scheduler.open(0, 0);
    clock.ms = 3;
    scheduler.open(0, 0);
    clock.ms = 7;
    scheduler.completeNext(1);
    clock.ms = 15;
    scheduler.completeNext(2);
    clock.ms = 16;
    expect(scheduler.stats()).toMatchObject({
      occupancyMsByDepth: [2, 10, 4],
      occupancyTotalMs: 16,
      occupancyParallelMs: 4,
      occupancyParallelFraction: 0.25,
      occupancyFullMs: 4,
      occupancyFullFraction: 0.25,
      occupancyAverageInFlight: 18 / 16,
    });
  });

  it('is all full and never parallel at depth 1', () => {
    const { scheduler, clock } = create({ depth: 1 });
    scheduler.open(0, 0);
    clock.ms = 8;
    expect(scheduler.stats()).toMatchObject({
      occupancyParallelMs: 0,
      occupancyParallelFraction: 0,
      occupancyFullMs: 8,
      occupancyFullFraction: 1,
      occupancyAverageInFlight: 1,
    });
  });

  it.each([
    ['steps back', -50, -45, 5],
    ['reads NaN for a while', Number.NaN, 30, 20],
    ['reads Infinity', Number.POSITIVE_INFINITY, 30, 20],
    ['reads -Infinity', Number.NEGATIVE_INFINITY, 30, 20],
  ])('does not suffer from a clock that %s', (_, strangeMs, nextMs, countedMs) => {
    const { scheduler, clock } = create();
    clock.ms = 10;
    scheduler.open(0, 0);
    clock.ms = strangeMs;
    expect(scheduler.stats().occupancyMsByDepth).toEqual([10, 0, 0]);
    scheduler.open(0, 0);
    expect(scheduler.stats().occupancyMsByDepth).toEqual([10, 0, 0]);
    clock.ms = nextMs;
    scheduler.completeNext(1);
    clock.ms += 5;
    expect(scheduler.stats().occupancyMsByDepth).toEqual([10, 5, countedMs]);
  });

  it.each<[string, () => unknown]>([
    ['NaN', () => Number.NaN],
    ['Infinity', () => Number.POSITIVE_INFINITY],
    ['a BigInt', () => 1n],
    ['text', () => '1'],
    ['nothing', () => undefined],
    [
      'an error',
      () => {
        throw new Error('broken clock');
      },
    ],
  ])('is not taken from a clock that gives %s: it is refused', (_, clock) => {
    expect(() => new VerifyWindowScheduler({ depth: 2, clock: clock as () => number })).toThrow(
      'clock must be a function that gives a finite number',
    );
  });

  it('reads the clock once for each transition, and not where there is none', () => {
    let readings = 0;
    const scheduler = new VerifyWindowScheduler({ depth: 2, clock: () => ++readings });
    const readingsOf = (call: () => unknown) => {
      const before = readings;
      call();
      return readings - before;
    };
    expect(readingsOf(() => scheduler.open(0, 0))).toBe(1);
    expect(readingsOf(() => scheduler.completeNext(1))).toBe(1);
    expect(readingsOf(() => scheduler.discardStale())).toBe(0);
    expect(readingsOf(() => scheduler.markRecoveryEpoch(1))).toBe(0);
    expect(readingsOf(() => refusal(() => scheduler.completeNext(1)))).toBe(0);
    scheduler.open(0, 0);
    scheduler.open(0, 0);
    expect(readingsOf(() => scheduler.discardStale())).toBe(1);
    scheduler.open(0, 0);
    expect(readingsOf(() => scheduler.close())).toBe(1);
  });
});

describe('stale windows', () => {
  it('are dropped at once by discardStale, which says how many', () => {
    const { scheduler, clock } = create();
    scheduler.open(0, 0);
    scheduler.open(0, 0);
    clock.ms = 5;
    expect(scheduler.discardStale()).toBe(2);
    expect(scheduler.discardStale()).toBe(0);
    clock.ms = 6;
    expect(scheduler).toMatchObject({ inFlight: 0, hasCapacity: true, staleDiscarded: 2 });
    expect(scheduler.stats().occupancyMsByDepth).toEqual([1, 0, 5]);
    expect(refusal(() => scheduler.completeNext(3)).code).toBe('reply_without_window');
  });

  it('may be answered late, which is no protocol error: message and refusal stay the same', () => {
    const { scheduler } = create();
    const late = [scheduler.open(0, 0), scheduler.open(0, 0)];
    scheduler.discardStale();
    for (const { id } of late) {
      const error = refusal(() => scheduler.completeNext(id));
      expect(error.code).toBe('reply_stale');
      expect(error.message).toBe('verify window reply arrived with no in-flight window');
    }
    const { id } = scheduler.open(0, 0);
    const error = refusal(() => scheduler.completeNext(2));
    expect(error.code).toBe('reply_stale');
    expect(error.message).toBe('verify window reply out of order: got 2, expected 3');
    for (const other of [0, 4, 2.5, Number.NaN]) {
      expect(refusal(() => scheduler.completeNext(other)).code).toBe('reply_out_of_order');
    }
    scheduler.completeNext(id);
    expect(refusal(() => scheduler.completeNext(id)).code).toBe('reply_without_window');
    expect(refusal(() => scheduler.completeNext(1)).code).toBe('reply_stale');
    expect(scheduler.tally.errors).toMatchObject({
      reply_stale: 4,
      reply_out_of_order: 4,
      reply_without_window: 1,
    });
  });

  it('are counted with the work that they burned; what is no duration counts as 0', () => {
    const { scheduler } = create();
    scheduler.recordStaleDiscarded(3, 1.5);
    scheduler.recordStaleDiscarded(0, Number.NaN);
    scheduler.recordStaleDiscarded(0, -7);
    scheduler.recordStaleExecution({
      drainMs: 1,
      stage0ComputeMs: 2,
      forwardWriteMs: 3,
      downstreamWaitMs: 4,
      verifyElapsedMs: 5,
    });
    scheduler.recordStaleExecution({
      drainMs: Number.NaN,
      stage0ComputeMs: -1,
      forwardWriteMs: Number.POSITIVE_INFINITY,
      downstreamWaitMs: Number.NEGATIVE_INFINITY,
      verifyElapsedMs: 0.5,
    });
    expect(scheduler.stats()).toMatchObject({
      staleDiscarded: 5,
      staleDrainMs: 2.5,
      staleStage0ComputeMs: 2,
      staleForwardWriteMs: 3,
      staleDownstreamWaitMs: 4,
      staleVerifyElapsedMs: 5.5,
    });
  });
});

describe('what a generation notes', () => {
  it('is the last direct-return path in the statistics, and every one in the tally', () => {
    const { scheduler } = create();
    scheduler.markDirectPredictionReturn(true);
    scheduler.markDirectPredictionReturn(false);
    expect(scheduler.stats()).toMatchObject({
      directReturnUpstreamOpened: false,
      directReturnReverseFallback: true,
    });
    expect(scheduler.tally.directReturns).toEqual({ upstream_opened: 1, reverse_fallback: 1 });
  });

  it('is each refill, a miss where it appended nothing', () => {
    const { scheduler } = create();
    for (const tokens of [0, 4, 0, 1]) scheduler.recordHorizonRefill(tokens);
    expect(scheduler.stats()).toMatchObject({
      horizonRefillAttempts: 4,
      horizonRefillSuccesses: 2,
      horizonRefillTokens: 5,
      horizonRefillMisses: 2,
    });
  });

  it.each([
    [1, 8, false],
    [2, 8, true],
    [2, 1, true],
    [2, 0, false],
    [2, Number.NaN, false],
  ])('at depth %d pipelines windows of width %d: %s', (depth, width, supported) => {
    expect(create({ depth }).scheduler.supportsPipelining(width)).toBe(supported);
  });
});

it('saturates its counters where doubles stop to tell integers apart', () => {
  const { scheduler } = create();
  for (let round = 0; round < 2; round++) {
    scheduler.markRecoveryEpoch(MAX);
    scheduler.markStale(MAX);
    scheduler.recordStaleDiscarded(MAX, Number.MAX_VALUE);
    scheduler.recordStaleExecution(stale({ verifyElapsedMs: Number.MAX_VALUE }));
    scheduler.recordHorizonRefill(MAX);
    const { id } = scheduler.open(MAX, MAX);
    scheduler.completeNext(id, { proposedTokens: MAX, acceptedTokens: MAX });
    scheduler.open(0, 0);
    scheduler.discardStale();
  }
  expect(scheduler.stats()).toMatchObject({
    recoveryEpochs: 2,
    staleMarked: MAX,
    staleDiscarded: MAX,
    staleDrainMs: Number.MAX_VALUE,
    staleVerifyElapsedMs: Number.MAX_VALUE,
    horizonRefillTokens: MAX,
  });
  expect(scheduler.tally).toMatchObject({ proposedTokens: MAX, acceptedTokens: MAX });
});

it('lets go of a window once it is retired', async () => {
  const { scheduler } = create({ depth: 4 });
  const windows = [1, 2, 3].map(() => new WeakRef(scheduler.open(0, 0)));
  scheduler.completeNext(1);
  scheduler.discardStale();
  // A WeakRef holds its target until the turn ends.
  await new Promise(setImmediate);
  globalThis.gc?.();
  expect(windows.map((window) => window.deref())).toEqual([undefined, undefined, undefined]);
});

describe('a closed scheduler', () => {
  it('has dropped what was in flight, and stands still', () => {
    const { scheduler, clock } = create();
    scheduler.open(0, 0);
    clock.ms = 4;
    scheduler.close();
    clock.ms = 100;
    expect(scheduler.stats()).toMatchObject({ opened: 1, occupancyMsByDepth: [0, 4, 0] });
    expect(scheduler.tally.dropped).toEqual({ stale: 0, closed: 1 });
    expect(scheduler).toMatchObject({
      inFlight: 0,
      hasCapacity: false,
      isClosed: true,
      staleDiscarded: 0,
      depth: 2,
    });
    expect(scheduler.supportsPipelining(4)).toBe(true);
  });

  it('is closed once', () => {
    const { scheduler, clock } = create();
    scheduler.open(0, 0);
    scheduler.close();
    const stats = scheduler.stats();
    clock.ms = 9;
    scheduler.close();
    expect(scheduler.stats()).toEqual(stats);
    expect(scheduler.tally.dropped.closed).toBe(1);
  });

  it('is what the end of its block leaves', () => {
    const { scheduler } = create();
    scheduler[Symbol.dispose]();
    expect(scheduler.isClosed).toBe(true);
  });

  it.each<[string, (scheduler: VerifyWindowScheduler) => unknown]>([
    ['open', (scheduler) => scheduler.open(0, 0)],
    ['completeNext', (scheduler) => scheduler.completeNext(1)],
    ['recordStaleDiscarded', (scheduler) => scheduler.recordStaleDiscarded(1, 1)],
    ['recordStaleExecution', (scheduler) => scheduler.recordStaleExecution(stale())],
    ['markRecoveryEpoch', (scheduler) => scheduler.markRecoveryEpoch(1)],
    ['markStale', (scheduler) => scheduler.markStale(1)],
    ['markDirectPredictionReturn', (scheduler) => scheduler.markDirectPredictionReturn(true)],
    ['recordHorizonRefill', (scheduler) => scheduler.recordHorizonRefill(1)],
  ])('refuses %s', (_, call) => {
    const { scheduler } = create();
    scheduler.open(0, 0);
    scheduler.close();
    const before = scheduler.stats();
    const error = refusal(() => call(scheduler));
    expect(error.code).toBe('closed');
    expect(error.message).toBe('verify window scheduler is closed');
    expect(scheduler.stats()).toEqual(before);
    expect(scheduler.tally.errors.closed).toBe(1);
  });

  it('has nothing left to discard', () => {
    const { scheduler } = create();
    scheduler.open(0, 0);
    scheduler.close();
    expect(scheduler.discardStale()).toBe(0);
    expect(scheduler.tally.dropped).toEqual({ stale: 0, closed: 1 });
  });
});
