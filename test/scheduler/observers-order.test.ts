import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  VerifyWindowError,
  type VerifyWindowObserver,
  VerifyWindowScheduler,
} from '../../src/index.js';
import { hostileValues } from '../tracing/hostile-values.js';
import { Model } from './model.js';
import { type Operation, operations, perform } from './operations.js';
import { Recorder } from './recorder.js';

const KINDS = ['opened', 'completed', 'dropped', 'recoveryEpoch', 'refused', 'closed'] as const;
type Kind = (typeof KINDS)[number];

/** What an observer does while it is told of something: it calls the scheduler, and it may throw. */
interface Reaction {
  readonly operation: Operation | undefined;
  readonly isThrown: boolean;
}

const reactions = fc.tuple(operations(), fc.infiniteStream(fc.nat(3))).map(([calls, choice]) =>
  calls.map((operation): Reaction => {
    const chosen = choice.next().value;
    return { operation: chosen === 0 ? undefined : operation, isThrown: chosen === 1 };
  }),
);

/** What one observer heard, and from which event of all to which. */
interface Heard {
  readonly recorder: Recorder;
  readonly from: number;
  to?: number;
  readonly unsubscribe: () => void;
}

/** A scheduler whose observers take their turns in calling it, beside the model of it. */
class Crowd {
  readonly scheduler: VerifyWindowScheduler;
  readonly model: Model;
  readonly heard: Heard[] = [];
  thrown = 0;
  readonly #reactions: Reaction[];
  readonly #reactsTo: ReadonlySet<Kind>;

  constructor(depth: number, plan: readonly Reaction[], reactsTo: readonly Kind[]) {
    this.scheduler = new VerifyWindowScheduler({ depth, clock: () => 0 });
    this.model = new Model(depth, 1, 0);
    this.#reactions = [...plan];
    this.#reactsTo = new Set(reactsTo);
  }

  subscribe(): void {
    const recorder = new Recorder();
    const from = this.model.events.length;
    const unsubscribe = this.scheduler.subscribe(this.#observer(recorder));
    this.heard.push({ recorder, from, unsubscribe });
  }

  /** Makes a call, and has the model answer the same. Called by the host and by observers. */
  perform(operation: Operation): void {
    if (operation.name === 'subscribe') this.subscribe();
    if (operation.name === 'unsubscribe') this.#unsubscribe();
    const { oldestId } = this.model;
    const expected = this.model.perform(operation, 0);
    const actual = attempt(() => perform(this.scheduler, operation, oldestId));
    expect(actual).toStrictEqual(expected);
  }

  /** One of those that came late leaves, if there is one. */
  #unsubscribe(): void {
    const leaving = this.heard.findLast(({ from, to }) => from > 0 && to === undefined);
    if (leaving === undefined) return;
    leaving.unsubscribe();
    leaving.to = this.model.events.length;
  }

  #observer(recorder: Recorder): VerifyWindowObserver {
    const methods = KINDS.map((kind) => [
      kind,
      (scheduler: VerifyWindowScheduler, ...details: never[]) => {
        (recorder[kind] as (...args: unknown[]) => void)(scheduler, ...details);
        if (this.#reactsTo.has(kind)) this.#react();
      },
    ]);
    return {
      ...Object.fromEntries(methods),
      failed: (error) => {
        recorder.failed(error);
        throw error;
      },
    };
  }

  #react(): void {
    const reaction = this.#reactions.shift();
    if (reaction?.operation !== undefined) this.perform(reaction.operation);
    if (reaction?.isThrown) {
      this.thrown++;
      throw new Error('from an observer');
    }
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

/** Assertions that fail in an observer would stay there. */
function failuresOf(heard: readonly Heard[]): unknown[] {
  return heard.flatMap(({ recorder }) => recorder.failures);
}

const depths = fc.integer({ min: 1, max: 4 });
const crowds = fc.integer({ min: 0, max: 3 });

describe('observers that call the scheduler while they are told of something', () => {
  it('all hear everything in the order in which it happened, and the host nothing of it', () => {
    fc.assert(
      fc.property(depths, crowds, operations(), reactions, (depth, observers, calls, plan) => {
        // What is dropped together happens at once, and is told one by one: see below.
        const crowd = new Crowd(
          depth,
          plan,
          KINDS.filter((kind) => kind !== 'dropped'),
        );
        for (let i = 0; i < observers; i++) crowd.subscribe();
        for (const operation of calls) crowd.perform(operation);

        const { events } = crowd.model;
        for (const { recorder, from, to } of crowd.heard) {
          expect(recorder.events).toEqual(events.slice(from, to));
        }
        expect(failuresOf(crowd.heard)).toEqual(
          Array(crowd.thrown).fill(new Error('from an observer')),
        );
      }),
      { numRuns: 500 },
    );
  });

  it('all hear the same, also where they call it while windows are dropped', () => {
    fc.assert(
      fc.property(depths, operations(), reactions, (depth, calls, plan) => {
        const crowd = new Crowd(depth, plan, KINDS);
        for (let i = 0; i < 3; i++) crowd.subscribe();
        for (const operation of calls) crowd.perform(operation);

        const [first, ...others] = crowd.heard.slice(0, 3).map(({ recorder }) => recorder.events);
        for (const events of others) expect(events).toEqual(first);
        // Nothing is told twice, and nothing is left out.
        const sorted = (events: readonly unknown[]) =>
          events.map((event) => stringOf(event)).sort();
        expect(sorted(first ?? [])).toEqual(sorted(crowd.model.events));
        expect(failuresOf(crowd.heard)).toEqual(
          Array(crowd.thrown).fill(new Error('from an observer')),
        );
      }),
      { numRuns: 500 },
    );
  });

  it('hear of what one of them caused after what they are being told', () => {
    const { scheduler } = new Crowd(2, [], []);
    const told: string[] = [];
    const listen = (name: string) =>
      scheduler.subscribe({
        opened: (_, { id }) => {
          told.push(`${name} opened ${id}`);
          if (name === 'first' && id === 1) scheduler.completeNext(1);
        },
        completed: (_, { id }) => {
          told.push(`${name} completed ${id}`);
        },
      });
    for (const name of ['first', 'second', 'third']) listen(name);
    expect(scheduler.open(0, 0).id).toBe(1);
    expect(told).toEqual([
      'first opened 1',
      'second opened 1',
      'third opened 1',
      'first completed 1',
      'second completed 1',
      'third completed 1',
    ]);
  });

  it.each(['discardStale', 'close'] as const)(
    'hear of it all before %s returns to the host',
    (method) => {
      const { scheduler } = new Crowd(2, [], []);
      const recorder = new Recorder();
      scheduler.subscribe({ dropped: () => attempt(() => scheduler.open(0, 0)) });
      scheduler.subscribe(recorder);
      scheduler.open(0, 0);
      scheduler.open(0, 0);
      scheduler[method]();
      expect(recorder.events.map(([kind]) => kind)).toContain(
        method === 'close' ? 'refused' : 'opened',
      );
    },
  );

  it('hear of all windows that were discarded before what one of them opens then', () => {
    const { scheduler } = new Crowd(2, [], []);
    const recorder = new Recorder();
    scheduler.subscribe({
      dropped: (_, { id }) => {
        if (id === 1) scheduler.open(0, 0);
      },
    });
    scheduler.subscribe(recorder);
    scheduler.open(0, 0);
    scheduler.open(0, 0);
    scheduler.discardStale();
    expect(recorder.events.slice(2).map(([kind]) => kind)).toEqual([
      'dropped',
      'dropped',
      'opened',
    ]);
  });

  it('hear of a close before what is refused for it', () => {
    const { scheduler } = new Crowd(2, [], []);
    const recorder = new Recorder();
    scheduler.subscribe({ dropped: () => attempt(() => scheduler.open(0, 0)) });
    scheduler.subscribe(recorder);
    scheduler.open(0, 0);
    scheduler.close();
    expect(recorder.events.slice(1).map(([kind]) => kind)).toEqual([
      'dropped',
      'closed',
      'refused',
    ]);
  });
});

describe('what an observer throws', () => {
  const calls: [string, (scheduler: VerifyWindowScheduler) => unknown][] = [
    ['an opened window', (scheduler) => scheduler.open(0, 0)],
    ['a completed window', (scheduler) => scheduler.completeNext(scheduler.open(0, 0).id)],
    [
      'a dropped window',
      (scheduler) => {
        scheduler.open(0, 0);
        return scheduler.discardStale();
      },
    ],
    ['a recovery epoch', (scheduler) => scheduler.markRecoveryEpoch(1)],
    ['a refused call', (scheduler) => scheduler.completeNext(99)],
    ['a close', (scheduler) => scheduler.close()],
  ];

  describe.each([1, 3])('of %i observers', (observers) => {
    it.each(calls)('of %s never reaches the host, whatever it is', (_, call) => {
      for (const { make } of hostileValues) {
        const { scheduler } = new Crowd(2, [], []);
        const throwing = () => {
          throw make();
        };
        for (let i = 0; i < observers; i++) {
          scheduler.subscribe({
            ...Object.fromEntries(KINDS.map((kind) => [kind, throwing])),
            failed: throwing,
          });
        }
        const alone = new Crowd(2, [], []).scheduler;
        expect(attempt(() => call(scheduler))).toStrictEqual(attempt(() => call(alone)));
        expect(scheduler.tally).toEqual(alone.tally);
      }
    });
  });

  it.each([1, 3])('where it is looked at, of %i observers, does not either', (observers) => {
    const { scheduler } = new Crowd(2, [], []);
    const observer = new Proxy(
      {},
      {
        get: () => {
          throw new Error('from the observer');
        },
      },
    );
    for (let i = 0; i < observers; i++) scheduler.subscribe(observer);
    expect(scheduler.completeNext(scheduler.open(0, 0).id).id).toBe(1);
    scheduler.close();
  });
});

/** An event as text, its keys in order. */
function stringOf(event: unknown): string {
  return JSON.stringify(event, (_, value) => (Number.isNaN(value) ? 'NaN' : value));
}
