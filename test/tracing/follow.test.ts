import { PassThrough, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setImmediate } from 'node:timers/promises';
import { isPromise } from 'node:util/types';
import { SpanStatusCode, trace } from '@opentelemetry/api';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { ATTR_ERROR_TYPE, ATTR_LLAMA_STAGE_GENERATION_OUTCOME } from '../../semconv/attributes.js';
import {
  METRIC_GEN_AI_SERVER_REQUEST_DURATION,
  METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
  METRIC_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
  METRIC_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
} from '../../semconv/metrics.js';
import {
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_STAGE_COMPUTE,
  SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
  SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import { GenerationTelemetry, StageTelemetry } from '../../src/index.js';
import { ManualReader, providerWith } from '../metrics/collected.js';
import { listenToDiag, nanoseconds, Tracing, useApi } from './sdk.js';

const CARRIER = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` };
const COMPUTE = METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION;

useApi();

interface Sdk {
  readonly tracerProvider: Tracing['provider'];
  readonly meterProvider: ReturnType<typeof providerWith>;
}

type Run = <Result>(act: () => Result) => unknown;

/** Where a host hands over its own code, and what comes of it. */
interface Place {
  readonly name: string;
  readonly span: string;
  /** The histogram that holds how long it took. */
  readonly metric?: string;
  readonly runner: (sdk: Sdk) => Run;
}

const startWindow = (sdk: Sdk) => new StageTelemetry({ index: 1, ...sdk }).startWindow(CARRIER);

const places: Place[] = [
  {
    name: 'a generation',
    span: SPAN_LLAMA_STAGE_GENERATION,
    metric: METRIC_GEN_AI_SERVER_REQUEST_DURATION,
    runner: (sdk) => (act) => new GenerationTelemetry(sdk).run({ depth: 1 }, act),
  },
  {
    name: 'a window',
    span: SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
    runner: (sdk) => (act) => new StageTelemetry({ index: 1, ...sdk }).window(CARRIER, act),
  },
  {
    name: 'compute',
    span: SPAN_LLAMA_STAGE_STAGE_COMPUTE,
    metric: COMPUTE,
    runner: (sdk) => (act) => startWindow(sdk).compute(act),
  },
  {
    name: 'forwardWrite',
    span: SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
    metric: METRIC_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
    runner: (sdk) => (act) => startWindow(sdk).forwardWrite(act),
  },
  {
    name: 'downstreamWait',
    span: SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
    metric: METRIC_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
    runner: (sdk) => (act) => startWindow(sdk).downstreamWait(act),
  },
  {
    name: 'computeBatch',
    span: SPAN_LLAMA_STAGE_STAGE_COMPUTE,
    metric: COMPUTE,
    runner: (sdk) => (act) => {
      const stage = new StageTelemetry({ index: 1, ...sdk });
      return stage.computeBatch([stage.startWindow(CARRIER)], act);
    },
  },
];

/** One place with an SDK of its own. */
function observe({ runner, span }: Place) {
  const tracing = new Tracing();
  const reader = new ManualReader();
  const run = runner({ tracerProvider: tracing.provider, meterProvider: providerWith(reader) });
  return {
    tracing,
    reader,
    /** Runs a piece of the host's code, and gives what the host got for it. */
    run: <Result>(act: () => Result) => run(act) as Result,
    /** The span of that piece, once it has ended. */
    ended: () => tracing.span(span),
    hasEnded: () => tracing.spans(span).length > 0,
    /** Of the span, how it ended: nothing where that was without an error. */
    error: () => {
      const { attributes, status } = tracing.span(span);
      expect(status.code === SpanStatusCode.ERROR).toBe(ATTR_ERROR_TYPE in attributes);
      return attributes[ATTR_ERROR_TYPE];
    },
    outcome: () => tracing.span(span).attributes[ATTR_LLAMA_STAGE_GENERATION_OUTCOME],
  };
}

/** The place of the generation, the only one whose span tells more than whether it failed. */
const generationPlace = places[0] as Place;
const computePlace = places[2] as Place;

function activeSpanId(): string | undefined {
  return trace.getActiveSpan()?.spanContext().spanId;
}

/** A client's promise with a method of its own. */
class ApiPromise<Value> extends Promise<Value> {
  async withResponse() {
    return { data: await this, status: 200 };
  }
}

/** A client's promise that sends its request when it is first awaited. */
class LazyPromise<Value> extends Promise<Value> {
  started = 0;
  readonly #work: () => Value;

  constructor(work: () => Value) {
    super(() => {});
    this.#work = work;
  }

  // biome-ignore lint/suspicious/noThenProperty: a lazy promise is what this is about.
  override then<A = Value, B = never>(
    resolved?: ((value: Value) => A | PromiseLike<A>) | null,
    rejected?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.started++;
    return new Promise<Value>((resolve) => resolve(this.#work())).then(resolved, rejected);
  }
}

/** A query builder: a thenable that is no promise, and starts when it is awaited. */
function lazyThenable<Value>(work: () => Value) {
  const query = {
    started: 0,
    timeout: () => query,
    // biome-ignore lint/suspicious/noThenProperty: a thenable is what this is about.
    then: (resolved?: (value: Value) => unknown, rejected?: (error: unknown) => unknown) => {
      query.started++;
      return new Promise<Value>((resolve) => resolve(work())).then(resolved, rejected);
    },
  };
  return query;
}

async function* count(upTo: number) {
  for (let i = 1; i <= upTo; i++) yield i;
}

async function valuesOf<Value>(stream: AsyncIterable<Value>): Promise<Value[]> {
  const values: Value[] = [];
  for await (const value of stream) values.push(value);
  return values;
}

/** The rejections that nobody handles while `act` runs and for a turn of the event loop after it. */
async function unhandledDuring(act: () => unknown): Promise<unknown[]> {
  const unhandled: unknown[] = [];
  const others = process.listeners('unhandledRejection');
  process.removeAllListeners('unhandledRejection');
  process.on('unhandledRejection', (error) => unhandled.push(error));
  try {
    await act();
    await setImmediate();
  } finally {
    process.removeAllListeners('unhandledRejection');
    for (const other of others) process.on('unhandledRejection', other);
  }
  return unhandled;
}

const throwError = (): never => {
  throw new RangeError('of the host');
};

describe.each(places)('$name', (place) => {
  describe('that gives a value', () => {
    test.each<[string, () => unknown]>([
      ['a number', () => 7],
      ['nothing', () => undefined],
      ['null', () => null],
      ['a symbol', () => Symbol('s')],
      ['a function', () => () => 7],
      ['an array', () => [1, 2]],
      ['a set, that can be iterated again and again', () => new Set([1])],
      ['a frozen object', () => Object.freeze({ frozen: true })],
      ['an object without a prototype', () => Object.create(null)],
      ['a proxy', () => new Proxy({}, {})],
      ['an object with a `then` that is no function', () => Object.fromEntries([['then', 1]])],
      ['a typed array', () => new Float32Array(2)],
    ])('gives the host %s itself, and has ended', async (_, make) => {
      const { run, hasEnded } = observe(place);
      const value = make();
      const result = run(() => value);
      expect(hasEnded()).toBe(true);
      expect((await result) === value).toBe(true);
    });

    test.each<[string, () => object]>([
      [
        'a `then` getter that throws',
        () => Object.defineProperty({}, 'then', { get: throwError, enumerable: true }),
      ],
      [
        'a getter of its iterator that throws',
        () => Object.defineProperty({}, Symbol.asyncIterator, { get: throwError }),
      ],
      ['a proxy that throws whatever it is asked', () => new Proxy({}, { get: throwError })],
      [
        'a revoked proxy',
        () => {
          const { proxy, revoke } = Proxy.revocable({}, {});
          revoke();
          return proxy;
        },
      ],
    ])('leaves it to the host what comes of %s', async (_, make) => {
      const complain = listenToDiag();
      const { run, hasEnded } = observe(place);
      const value = make();
      const result = run(() => value);
      expect(hasEnded()).toBe(true);
      // A generation gives a promise of it, which settles as any promise of such a value does.
      if (isPromise(result)) await result.catch(() => {});
      else expect(result === value).toBe(true);
      expect(complain).not.toHaveBeenCalled();
    });
  });

  describe('that gives a promise', () => {
    test('gives the host that promise, and lasts until it is settled', async () => {
      const { run, hasEnded, error } = observe(place);
      const { promise, resolve } = deferred();
      const result = run(() => promise);
      expect(result).toBe(promise);
      await setImmediate();
      expect(hasEnded()).toBe(false);
      resolve('settled');
      expect(await result).toBe('settled');
      expect(error()).toBeUndefined();
    });

    test('adds nothing to the promise', async () => {
      const { run } = observe(place);
      const promise = Promise.resolve(7);
      const result = run(() => promise);
      // Node itself marks promises with symbols, where contexts are kept.
      expect(Object.getOwnPropertyNames(result)).toEqual([]);
      expect(await result).toBe(7);
    });

    test('keeps the class of a promise, and its methods', async () => {
      const { run, error } = observe(place);
      const promise = ApiPromise.resolve(7) as ApiPromise<number>;
      const result = run(() => promise);
      expect(result).toBe(promise);
      expect(await result.withResponse()).toEqual({ data: 7, status: 200 });
      expect(error()).toBeUndefined();
    });

    test('starts no lazy promise, and lasts from then on until that is settled', async () => {
      const { run, hasEnded, error } = observe(place);
      const lazy = new LazyPromise(() => 7);
      const result = run(() => lazy);
      expect(result).toBe(lazy);
      await setImmediate();
      expect(lazy.started).toBe(0);
      expect(hasEnded()).toBe(false);
      expect(await result).toBe(7);
      expect(lazy.started).toBe(1);
      expect(error()).toBeUndefined();
    });

    test('starts no lazy thenable, keeps its methods, and sees how it ends', async () => {
      const { run, hasEnded, error } = observe(place);
      const lazy = lazyThenable(() => 7);
      const result = run(() => lazy);
      expect(result).toBe(lazy);
      expect(result.timeout()).toBe(lazy);
      await setImmediate();
      expect(lazy.started).toBe(0);
      expect(hasEnded()).toBe(false);
      expect(await result).toBe(7);
      expect(lazy.started).toBe(1);
      expect(error()).toBeUndefined();
    });

    test('sees a lazy thenable fail, and the host gets its error', async () => {
      const { run, error } = observe(place);
      const lazy = lazyThenable(throwError);
      await expect(run(() => lazy)).rejects.toThrow(RangeError);
      expect(lazy.started).toBe(1);
      expect(error()).toBe('RangeError');
    });

    test('ends once, however often a lazy thenable is awaited', async () => {
      const { run, reader, ended } = observe(place);
      const lazy = lazyThenable(() => 7);
      const result = run(() => lazy);
      expect(await Promise.all([result, result])).toEqual([7, 7]);
      expect(lazy.started).toBe(2);
      expect(ended().ended).toBe(true);
      if (place.metric) expect((await reader.read()).count(place.metric)).toBe(1);
    });

    test('has ended where it cannot listen to a frozen thenable, and leaves that alone', async () => {
      const { run, hasEnded } = observe(place);
      const lazy = Object.freeze({ ...lazyThenable(() => 7) });
      const result = run(() => lazy);
      expect(result).toBe(lazy);
      expect(hasEnded()).toBe(true);
      expect(await result).toBe(7);
    });

    test.each<[string, () => PromiseLike<unknown>]>([
      ['native', () => Promise.reject(new RangeError())],
      ['with methods of its own', () => ApiPromise.reject(new RangeError())],
      ['lazy', () => new LazyPromise(throwError)],
    ])('that is %s and is handled leaves no rejection unhandled', async (_, reject) => {
      const { run, error } = observe(place);
      const caught = vi.fn();
      const unhandled = await unhandledDuring(async () => {
        await (run(reject) as Promise<unknown>).catch(caught);
      });
      expect(caught).toHaveBeenCalledTimes(1);
      expect(unhandled).toEqual([]);
      expect(error()).toBe('RangeError');
    });
  });

  describe('that gives a stream', () => {
    test('gives an async generator itself, and lasts until it is exhausted', async () => {
      const { run, hasEnded, error } = observe(place);
      const stream = count(3);
      const result = run(() => stream);
      expect(result).toBe(stream);
      for await (const _ of result) expect(hasEnded()).toBe(false);
      expect(error()).toBeUndefined();
    });

    test('follows the generator that a promise gives', async () => {
      const { run, hasEnded, error } = observe(place);
      const stream = count(3);
      const result = await run(async () => stream);
      expect(result).toBe(stream);
      expect(hasEnded()).toBe(false);
      expect(await valuesOf(result)).toEqual([1, 2, 3]);
      expect(error()).toBeUndefined();
    });

    test('follows a generator that is not async', () => {
      const { run, hasEnded, error } = observe(place);
      const stream = (function* () {
        yield 1;
        yield 2;
      })();
      const result = run(() => stream);
      expect(result).toBe(stream);
      expect(result.next()).toEqual({ value: 1, done: false });
      expect(hasEnded()).toBe(false);
      expect([...result]).toEqual([2]);
      expect(error()).toBeUndefined();
    });

    test('follows what can be iterated, and is no generator', async () => {
      const { run, hasEnded, error } = observe(place);
      const iterable = { [Symbol.asyncIterator]: () => count(2), name: 'of the host' };
      const result = run(() => iterable);
      expect(result).toBe(iterable);
      await setImmediate();
      expect(hasEnded()).toBe(false);
      expect(await valuesOf(result)).toEqual([1, 2]);
      expect(error()).toBeUndefined();
      expect(await valuesOf(result)).toEqual([1, 2]);
    });

    test.each<[string, () => AsyncIterable<unknown>]>([
      ['of Node', () => Readable.from([1, 2])],
      ['of the web', () => Readable.toWeb(Readable.from([1, 2])) as AsyncIterable<unknown>],
    ])('follows a readable stream %s that is iterated', async (_, make) => {
      const { run, hasEnded, error } = observe(place);
      const stream = make();
      const result = run(() => stream);
      expect(result).toBe(stream);
      expect(hasEnded()).toBe(false);
      expect(await valuesOf(result)).toEqual([1, 2]);
      expect(error()).toBeUndefined();
    });

    test('follows one that is part of another stream', async () => {
      const { run, error } = observe(place);
      const result = run(() => count(2));
      const whole = async function* () {
        yield 0;
        yield* result;
        yield 3;
      };
      expect(await valuesOf(whole())).toEqual([0, 1, 2, 3]);
      expect(error()).toBeUndefined();
    });

    test('has its context active in every step, to the last one', async () => {
      const { run, ended } = observe(place);
      const active: (string | undefined)[] = [];
      const stream = async function* () {
        try {
          active.push(activeSpanId());
          await setImmediate();
          active.push(activeSpanId());
          yield 1;
          active.push(activeSpanId());
          yield 2;
        } catch {
          active.push(activeSpanId());
          yield 3;
        } finally {
          await setImmediate();
          active.push(activeSpanId());
        }
      };
      const result = run(stream);
      const outside = activeSpanId();
      await result.next();
      await result.next();
      await result.throw(new Error('of the host'));
      await result.return();
      expect(activeSpanId()).toBe(outside);
      const { spanId } = ended().spanContext();
      expect(active).toEqual(Array(5).fill(spanId));
    });

    test('has its context active where an iterator is made', async () => {
      const { run, ended } = observe(place);
      let active: string | undefined;
      const result = run(() => ({
        [Symbol.asyncIterator]: () => {
          active = activeSpanId();
          return count(1);
        },
      }));
      await valuesOf(result);
      expect(active).toBe(ended().spanContext().spanId);
    });

    test('lasts as long as the stream, and no shorter', async () => {
      const { run, reader, ended } = observe(place);
      let passedMs = 0;
      vi.spyOn(performance, 'now').mockImplementation(() => passedMs);
      const result = run(async function* () {
        for (let i = 0; i < 3; i++) {
          passedMs += 20;
          yield i;
        }
      });
      passedMs += 100;
      for await (const _ of result) passedMs += 5;
      passedMs += 1000;
      const { endTime, startTime } = ended();
      // The clock of spans counts in doubles, whose last digit is some hundred nanoseconds.
      const lastedMs = Number(nanoseconds(endTime) - nanoseconds(startTime)) / 1e6;
      expect(lastedMs).toBeCloseTo(175, 2);
      if (place.metric) {
        const [point] = (await reader.read()).histogram(place.metric);
        expect(point?.value).toMatchObject({ count: 1, sum: expect.closeTo(0.175) });
      }
    });

    test('has failed where the stream throws, and the host gets its error', async () => {
      const { run, error } = observe(place);
      const result = run(async function* () {
        yield 1;
        throwError();
      });
      const unhandled = await unhandledDuring(async () => {
        await expect(valuesOf(result)).rejects.toThrow(RangeError);
      });
      expect(error()).toBe('RangeError');
      expect(unhandled).toEqual([]);
    });

    test('has failed where a generator that is not async throws', () => {
      const { run, error } = observe(place);
      const result = run(function* () {
        yield 1;
        throwError();
      });
      expect(() => [...result]).toThrow(RangeError);
      expect(error()).toBe('RangeError');
    });

    test('has failed where what the host throws into it is not caught', async () => {
      const { run, error } = observe(place);
      const result = run(() => count(3));
      await result.next();
      await expect(result.throw(new RangeError())).rejects.toThrow(RangeError);
      expect(error()).toBe('RangeError');
    });

    test('ends without an error where it is left early, once its last code has run', async () => {
      const { run, hasEnded, error } = observe(place);
      let hadEnded: boolean | undefined;
      const result = run(async function* () {
        try {
          yield* count(3);
        } finally {
          await setImmediate();
          hadEnded = hasEnded();
        }
      });
      for await (const value of result) if (value === 2) break;
      expect(hadEnded).toBe(false);
      expect(error()).toBeUndefined();
    });

    test('ends where a generator that is not async is left early', () => {
      const { run, hasEnded, error } = observe(place);
      const result = run(function* () {
        yield* [1, 2, 3];
      });
      for (const value of result) {
        expect(hasEnded()).toBe(false);
        if (value === 2) break;
      }
      expect(error()).toBeUndefined();
    });

    test('ends where it is called off before its first step', async () => {
      const { run, error } = observe(place);
      const started = vi.fn();
      const result = run(async function* () {
        started();
        yield 1;
      });
      await result.return();
      expect(started).not.toHaveBeenCalled();
      expect(error()).toBeUndefined();
    });

    test('goes on where it does not let itself be left', async () => {
      const { run, hasEnded, error } = observe(place);
      const result = run(async function* () {
        try {
          yield 1;
        } finally {
          yield 2;
        }
      });
      await result.next();
      expect(await result.return()).toEqual({ value: 2, done: false });
      expect(hasEnded()).toBe(false);
      await result.next();
      expect(error()).toBeUndefined();
    });

    test('has ended where it cannot follow a frozen stream, and leaves that alone', async () => {
      const { run, hasEnded } = observe(place);
      const stream = Object.freeze({ [Symbol.asyncIterator]: () => count(2) });
      const result = run(() => stream);
      expect(result).toBe(stream);
      expect(hasEnded()).toBe(true);
      expect(await valuesOf(result)).toEqual([1, 2]);
    });
  });

  describe('that is called off', () => {
    const aborted = AbortSignal.abort();
    const called: [string, () => unknown][] = [
      ['by an AbortController, at once', () => aborted.throwIfAborted()],
      ['by an AbortController, later', () => setImmediate(undefined, { signal: aborted })],
      [
        'by an AbortError of its own',
        () => Promise.reject(Object.assign(new Error(), { name: 'AbortError' })),
      ],
      [
        'by a DOMException in a stream',
        async function* () {
          yield 1;
          throw new DOMException('gone', 'AbortError');
        },
      ],
    ];

    test.each(called)('%s has no error, and the host gets what was thrown', async (_, act) => {
      const { run, error } = observe(place);
      const finish = async () => {
        const result = await run(act);
        await valuesOf(result as AsyncIterable<unknown>);
      };
      await expect(finish()).rejects.toMatchObject({ name: 'AbortError' });
      expect(error()).toBeUndefined();
    });

    test.each<[string, () => unknown, string]>([
      [
        'a deadline that passed',
        () => Promise.reject(new DOMException('late', 'TimeoutError')),
        'TimeoutError',
      ],
      [
        'an abort with a reason that is an error',
        () => AbortSignal.abort(new RangeError()).throwIfAborted(),
        'RangeError',
      ],
      [
        'what only says that it is an AbortError',
        () => Promise.reject({ name: 'AbortError' }),
        '_OTHER',
      ],
    ])('is not the same as %s', async (_, act, errorType) => {
      const { run, error } = observe(place);
      await expect((async () => run(act))()).rejects.toBeDefined();
      expect(error()).toBe(errorType);
    });
  });
});

describe('a generation', () => {
  test.each<[string, string, () => unknown]>([
    ['that gives a value', 'completed', () => 7],
    ['that throws', 'failed', throwError],
    ['that is aborted', 'cancelled', () => AbortSignal.abort().throwIfAborted()],
    [
      'that came too late',
      'failed',
      () => Promise.reject(new DOMException('late', 'TimeoutError')),
    ],
    ['whose stream is exhausted', 'completed', () => count(2)],
    [
      'whose stream throws',
      'failed',
      async function* () {
        yield 1;
        throwError();
      },
    ],
  ])('%s has %s', async (_, expected, act) => {
    const { run, outcome } = observe(generationPlace);
    const finish = async () => {
      const result = await run(act);
      if (typeof result === 'object') await valuesOf(result as AsyncIterable<unknown>);
    };
    await finish().catch(() => {});
    expect(outcome()).toBe(expected);
  });

  test.each<[string, (stream: AsyncGenerator<number>) => Promise<unknown>]>([
    [
      'left by `break`',
      async (stream) => {
        for await (const _ of stream) break;
      },
    ],
    [
      'left by an error of the reader',
      async (stream) => {
        for await (const _ of stream) throwError();
      },
    ],
    ['called off', (stream) => stream.return(undefined)],
  ])('whose stream is %s was cancelled', async (_, leave) => {
    const { run, outcome } = observe(generationPlace);
    const result = run(() => count(3));
    await leave(result).catch(() => {});
    expect(outcome()).toBe('cancelled');
  });
});

describe('a phase', () => {
  test('whose stream nobody reads to its end lasts as long as its window', async () => {
    const tracing = new Tracing();
    const reader = new ManualReader();
    const stage = new StageTelemetry({
      index: 1,
      tracerProvider: tracing.provider,
      meterProvider: providerWith(reader),
    });
    await stage.window(CARRIER, async ({ compute }) => {
      await compute(() => count(3)).next();
      expect(tracing.spans()).toEqual([]);
    });
    const [phase, window] = tracing.spans();
    expect(phase?.name).toBe(SPAN_LLAMA_STAGE_STAGE_COMPUTE);
    expect(phase?.status.code).toBe(SpanStatusCode.UNSET);
    expect(nanoseconds(phase?.endTime ?? [0, 0])).toBeLessThanOrEqual(
      nanoseconds(window?.endTime ?? [0, 0]),
    );
    expect((await reader.read()).count(COMPUTE)).toBe(1);
  });

  test('and its window both follow the one stream that they give', async () => {
    const tracing = new Tracing();
    const stage = new StageTelemetry({ index: 1, tracerProvider: tracing.provider });
    const stream = count(2);
    const result = stage.window(CARRIER, ({ compute }) => compute(() => stream));
    expect(result).toBe(stream);
    await result.next();
    expect(tracing.spans()).toEqual([]);
    expect(await valuesOf(result)).toEqual([2]);
    expect(tracing.spans()).toHaveLength(2);
  });
});

describe('what was given', () => {
  /** Runs all of it as work of a stage without a trace, which costs least. */
  const runAgain = (times: number, act: () => unknown) => {
    const stage = new StageTelemetry({ index: 1 });
    for (let i = 0; i < times; i++) stage.startWindow(undefined).compute(act);
  };

  test('again and again still works as it did', async () => {
    const shared = lazyThenable(() => 7);
    runAgain(20_000, () => shared);
    expect(await shared).toBe(7);
  });

  test('again and again can still be iterated', async () => {
    const shared = { [Symbol.asyncIterator]: () => count(2) };
    runAgain(20_000, () => shared);
    expect(await valuesOf(shared)).toEqual([1, 2]);
  });

  test('is not asked for what might throw', async () => {
    const steps = count(2);
    const strict = new Proxy(
      { next: () => steps.next(), [Symbol.asyncIterator]: () => strict },
      {
        get: (target, name) => {
          if (name in target || typeof name === 'symbol' || name === 'then') {
            return Reflect.get(target, name);
          }
          throw new TypeError(`${name} is not there`);
        },
      },
    ) as AsyncIterableIterator<number>;
    const { run } = observe(computePlace);
    const result = run(() => strict);
    expect(await valuesOf(result)).toEqual([1, 2]);
  });

  test('by a promise is not asked for what might throw either', async () => {
    const strict = Object.defineProperty(count(2), 'throw', { get: throwError });
    const unhandled = await unhandledDuring(async () => {
      const { run } = observe(computePlace);
      expect(await valuesOf(await run(async () => strict))).toEqual([1, 2]);
    });
    expect(unhandled).toEqual([]);
  });

  test('may have a `then` getter that works only once', () => {
    let reads = 0;
    const value = Object.defineProperty({}, 'then', {
      get: () => (reads++ === 0 ? () => {} : throwError()),
    });
    const { run } = observe(computePlace);
    expect(run(() => value)).toBe(value);
  });

  test('takes each of its steps once', async () => {
    const steps = [1, 2].map((value) => lazyThenable(() => ({ value, done: value === 2 })));
    const all = [...steps];
    const iterator = {
      [Symbol.asyncIterator]: () => iterator,
      next: () => steps.shift(),
    } as unknown as AsyncIterableIterator<number>;
    const { run } = observe(computePlace);
    await valuesOf(run(() => iterator));
    expect(all.map(({ started }) => started)).toEqual([1, 1]);
  });

  test.each<[string, (stream: ReadableStream) => Promise<unknown>]>([
    [
      'by its reader',
      async (stream) => {
        const reader = stream.getReader();
        while (!(await reader.read()).done);
      },
    ],
    ['by a pipe', (stream) => stream.pipeTo(new WritableStream())],
    ['as a response', (stream) => new Response(stream).text()],
  ])('may be read %s', async (_, read) => {
    const { run, hasEnded } = observe(generationPlace);
    const stream = Readable.toWeb(Readable.from([Buffer.from('a')])) as ReadableStream;
    await read(run(() => stream));
    await setImmediate();
    expect(hasEnded()).toBe(true);
  });

  test('may be piped', async () => {
    const { run, hasEnded } = observe(generationPlace);
    const stream = run(() => Readable.from(['a']));
    await pipeline(stream, new PassThrough().resume());
    await setImmediate();
    expect(hasEnded()).toBe(true);
  });
});

/** What a reader may do with a stream. */
const step = fc.oneof(
  fc.record({ call: fc.constant('next' as const), value: fc.nat(9) }),
  fc.record({ call: fc.constant('return' as const), value: fc.nat(9) }),
  fc.record({ call: fc.constant('throw' as const), value: fc.nat(9) }),
);

/** A generator that answers by what it is told, catches some errors, and may refuse to be left. */
function* answering(plan: readonly number[]): Generator<number, string, number> {
  for (const number of plan) {
    try {
      const told = yield number;
      if (told === 0) return 'told to';
      if (told === 1) throw new RangeError('told to');
    } catch (error) {
      if (number % 2 === 0) throw error;
      yield -number;
    } finally {
      if (number % 5 === 4) yield 100;
    }
  }
  return 'end';
}

async function* asyncAnswering(plan: readonly number[]) {
  return yield* answering(plan);
}

test('a stream answers its reader as it does without telemetry', async () => {
  const plans = fc.array(fc.nat(9), { maxLength: 6 });
  const steps = fc.array(step, { maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(plans, steps, fc.boolean(), async (plan, calls, isAsync) => {
      const make = () => (isAsync ? asyncAnswering(plan) : answering(plan));
      const { run, hasEnded } = observe(computePlace);
      const [plain, followed] = [make(), run(make)];
      let isDone = false;
      for (const { call, value } of calls) {
        const [expected, actual] = await Promise.all(
          [plain, followed].map(async (stream) => {
            try {
              return await (stream[call] as (value: unknown) => unknown)(value);
            } catch (error) {
              return { error };
            }
          }),
        );
        expect(actual).toEqual(expected);
        isDone ||= (expected as { done?: boolean; error?: unknown }).done !== false;
        expect(hasEnded()).toBe(isDone);
      }
    }),
  );
});

function deferred() {
  let resolve = (_: unknown) => {};
  const promise = new Promise<unknown>((resolved) => {
    resolve = resolved;
  });
  return { promise, resolve };
}
