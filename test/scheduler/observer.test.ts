import { describe, expect, it } from 'vitest';
import {
  type VerifyWindowScheduler as Scheduler,
  type VerifyWindowObserver,
  VerifyWindowScheduler,
} from '../../src/index.js';
import { Recorder } from './recorder.js';

function create(depth = 3) {
  const clock = { ms: 0 };
  return { scheduler: new VerifyWindowScheduler({ depth, clock: () => clock.ms }), clock };
}

/** The kinds of events that a recorder has seen, in order. */
function kinds(recorder: Recorder): string[] {
  return recorder.events.map(([kind]) => kind);
}

/** An observer that does something the first time that it is told of `kind`. */
function once(kind: keyof VerifyWindowObserver, act: (scheduler: Scheduler) => void) {
  let isDone = false;
  return {
    [kind]: (scheduler: Scheduler) => {
      if (isDone) return;
      isDone = true;
      act(scheduler);
    },
  } satisfies VerifyWindowObserver;
}

describe('an observer', () => {
  it('is told what happens, after the fact', () => {
    const { scheduler, clock } = create();
    const recorder = new Recorder();
    scheduler.subscribe(recorder);

    const first = scheduler.open(7, 1);
    clock.ms = 3;
    const second = scheduler.open(9, 2);
    clock.ms = 10;
    const outcome = { proposedTokens: 4, acceptedTokens: 2 };
    scheduler.completeNext(first.id, outcome);
    scheduler.markRecoveryEpoch(1);
    scheduler.discardStale();
    const third = scheduler.open(9, 2);
    expect(() => scheduler.completeNext(99)).toThrow();
    scheduler.close();
    scheduler.close();
    expect(() => scheduler.open(0, 0)).toThrow();

    expect(recorder.events).toEqual([
      ['opened', first],
      ['opened', second],
      ['completed', first, 'partial_accept', 10, outcome],
      ['recoveryEpoch', 1],
      ['dropped', second, 'stale'],
      ['opened', third],
      ['refused', 'reply_out_of_order'],
      ['dropped', third, 'closed'],
      ['closed'],
      ['refused', 'closed'],
    ]);
    expect(recorder.shown.map(({ inFlight }) => inFlight)).toEqual([1, 2, 1, 1, 0, 1, 1, 0, 0, 0]);
    expect(recorder.shown.slice(-2)).toEqual([
      { inFlight: 0, isClosed: true },
      { inFlight: 0, isClosed: true },
    ]);
  });

  it('may have no method at all', () => {
    const { scheduler } = create();
    scheduler.subscribe({});
    scheduler.open(0, 0);
    scheduler.completeNext(1);
    scheduler.markRecoveryEpoch(0);
    scheduler.close();
    expect(() => scheduler.open(0, 0)).toThrow();
  });

  it('keeps its own this', () => {
    const { scheduler } = create();
    class Counter implements VerifyWindowObserver {
      count = 0;
      opened() {
        this.count++;
      }
    }
    const counter = new Counter();
    scheduler.subscribe(counter);
    scheduler.open(0, 0);
    expect(counter.count).toBe(1);
  });

  it('may watch several schedulers, and learns which one it hears of', () => {
    const [one, other] = [create().scheduler, create().scheduler];
    const recorder = new Recorder();
    one.subscribe(recorder);
    other.subscribe(recorder);
    one.open(0, 0);
    other.open(0, 0);
    expect(recorder.schedulers).toEqual(new Set([one, other]));
  });

  it('is told in the order of subscription, beside others', () => {
    const { scheduler } = create();
    const told: string[] = [];
    scheduler.subscribe({ opened: () => told.push('first') });
    scheduler.subscribe({ opened: () => told.push('second') });
    scheduler.open(0, 0);
    expect(told).toEqual(['first', 'second']);
  });
});

describe('a subscription', () => {
  it('ends once, however often that is asked for', () => {
    const { scheduler } = create();
    const [stays, leaves] = [new Recorder(), new Recorder()];
    const unsubscribe = scheduler.subscribe(leaves);
    scheduler.subscribe(stays);
    unsubscribe();
    unsubscribe();
    scheduler.open(0, 0);
    expect(leaves.events).toEqual([]);
    expect(kinds(stays)).toEqual(['opened']);
  });

  it('is one of its own each time that the same observer subscribes', () => {
    const { scheduler } = create();
    const recorder = new Recorder();
    const unsubscribe = scheduler.subscribe(recorder);
    const unsubscribeAgain = scheduler.subscribe(recorder);
    scheduler.open(0, 0);
    expect(kinds(recorder)).toEqual(['opened', 'opened']);
    unsubscribe();
    unsubscribe();
    scheduler.open(0, 0);
    expect(kinds(recorder)).toEqual(['opened', 'opened', 'opened']);
    unsubscribeAgain();
    scheduler.open(0, 0);
    expect(recorder.events).toHaveLength(3);
  });

  it('can begin anew after its end, also when it was the only one', () => {
    const { scheduler } = create();
    const recorder = new Recorder();
    scheduler.subscribe(recorder)();
    scheduler.open(0, 0);
    scheduler.subscribe(recorder);
    scheduler.completeNext(1);
    expect(kinds(recorder)).toEqual(['completed']);
  });

  it('can end and begin during a call, from the next transition on', () => {
    const { scheduler } = create();
    const [leaves, comes] = [new Recorder(), new Recorder()];
    scheduler.subscribe(
      once('opened', () => {
        unsubscribe();
        scheduler.subscribe(comes);
      }),
    );
    const unsubscribe = scheduler.subscribe(leaves);
    scheduler.open(0, 0);
    scheduler.completeNext(1);
    expect(kinds(leaves)).toEqual(['opened']);
    expect(kinds(comes)).toEqual(['completed']);
  });
});

describe('an observer that calls the scheduler', () => {
  it('can open the next window when one is completed', () => {
    const { scheduler } = create(1);
    scheduler.subscribe(once('completed', () => scheduler.open(1, 1)));
    scheduler.open(0, 0);
    expect(scheduler.completeNext(1).id).toBe(1);
    expect(scheduler.inFlight).toBe(1);
    expect(scheduler.completeNext(2)).toEqual({ id: 2, basePosition: 1, decodeStep: 1 });
  });

  it('can open a window when one is opened, up to the depth', () => {
    const { scheduler } = create(3);
    const recorder = new Recorder();
    scheduler.subscribe({
      opened: () => {
        if (scheduler.hasCapacity) scheduler.open(0, 0);
      },
    });
    scheduler.subscribe(recorder);
    expect(scheduler.open(0, 0).id).toBe(1);
    expect(scheduler.inFlight).toBe(3);
    expect(kinds(recorder)).toEqual(['opened', 'opened', 'opened']);
    for (const id of [1, 2, 3]) expect(scheduler.completeNext(id).id).toBe(id);
  });

  it('can close it when a window is opened', () => {
    const { scheduler } = create();
    const recorder = new Recorder();
    scheduler.subscribe(recorder);
    scheduler.subscribe(once('opened', () => scheduler.close()));
    expect(scheduler.open(0, 0).id).toBe(1);
    expect(scheduler.tally.dropped.closed).toBe(1);
    expect(kinds(recorder)).toEqual(['opened', 'dropped', 'closed']);
  });

  it('keeps the window that it opens while stale ones are discarded', () => {
    const { scheduler } = create();
    scheduler.subscribe(once('dropped', () => scheduler.open(5, 5)));
    scheduler.open(0, 0);
    scheduler.open(1, 1);
    expect(scheduler.discardStale()).toBe(2);
    expect(scheduler.tally.dropped.stale).toBe(2);
    expect(scheduler.staleDiscarded).toBe(2);
    expect(scheduler.inFlight).toBe(1);
    expect(scheduler.completeNext(3)).toMatchObject({ basePosition: 5 });
  });

  it('cannot open a window while the scheduler is being closed', () => {
    const { scheduler } = create();
    const recorder = new Recorder();
    scheduler.subscribe(recorder);
    scheduler.subscribe(once('dropped', () => scheduler.open(5, 5)));
    scheduler.open(0, 0);
    scheduler.open(1, 1);
    scheduler.close();
    expect(scheduler.stats().opened).toBe(2);
    expect(scheduler.tally.dropped.closed).toBe(2);
    expect(recorder.events).toContainEqual(['refused', 'closed']);
  });

  it.each(['close', 'discardStale'] as const)(
    'hears of the close once, also where it closes during %s',
    (method) => {
      const { scheduler } = create();
      const recorder = new Recorder();
      scheduler.subscribe(recorder);
      scheduler.subscribe(once('dropped', () => scheduler.close()));
      scheduler.open(0, 0);
      scheduler.open(1, 1);
      scheduler[method]();
      expect(kinds(recorder).filter((kind) => kind === 'dropped')).toHaveLength(2);
      expect(kinds(recorder).filter((kind) => kind === 'closed')).toHaveLength(1);
      const { stale, closed } = scheduler.tally.dropped;
      expect(stale + closed).toBe(2);
      expect(scheduler.staleDiscarded).toBe(stale);
    },
  );
});

describe('an observer that throws', () => {
  const throwing = () => {
    throw new Error('from the observer');
  };

  it('never reaches the caller, and is told of its own failure', () => {
    const { scheduler } = create();
    const failures: unknown[] = [];
    const after = new Recorder();
    scheduler.subscribe({
      opened: throwing,
      completed: throwing,
      dropped: throwing,
      recoveryEpoch: throwing,
      refused: throwing,
      closed: throwing,
      failed: (error) => failures.push(error),
    });
    scheduler.subscribe(after);

    expect(scheduler.open(0, 0).id).toBe(1);
    expect(scheduler.completeNext(1).id).toBe(1);
    scheduler.markRecoveryEpoch(0);
    expect(() => scheduler.completeNext(1)).toThrow('no in-flight window');
    scheduler.open(0, 0);
    scheduler.close();

    expect(failures).toEqual(Array(7).fill(new Error('from the observer')));
    expect(after.failures).toEqual([]);
    expect(kinds(after)).toEqual([
      'opened',
      'completed',
      'recoveryEpoch',
      'refused',
      'opened',
      'dropped',
      'closed',
    ]);
  });

  it('is let be where it throws again when told of it, or does not want to know', () => {
    const { scheduler } = create();
    const after = new Recorder();
    scheduler.subscribe({ opened: throwing, failed: throwing });
    scheduler.subscribe({ opened: throwing });
    scheduler.subscribe(after);
    expect(scheduler.open(0, 0).id).toBe(1);
    expect(kinds(after)).toEqual(['opened']);
  });
});
