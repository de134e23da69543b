import { attempt } from '../guard.js';
import { CANCELLED, COMPLETED, endBy, type WorkEnd } from './outcome.js';

/** Runs a piece of the host's code with a context active. */
export type RunInside = <Result>(act: () => Result) => Result;

/**
 * Runs the host's work, and calls `done` once it has ended: when it has returned or thrown; when
 * the promise that it returned is settled; when the stream that it returned, or its promise gave, is
 * exhausted, has thrown or is left early. Each step of a stream runs inside, too.
 *
 * @returns what `act` returned: the same object. A native promise is listened to, a lazy thenable
 * and an async iterable have their own methods replaced by ones that also listen. So nothing starts
 * before the host starts it, and a rejection reaches the host's handlers and no other ones.
 */
export function follow<Result>(
  act: () => Result,
  inside: RunInside,
  done: (end: WorkEnd) => void,
): Result {
  let hasEnded = false;
  const end = (how: WorkEnd) => {
    if (hasEnded) return;
    hasEnded = true;
    done(how);
  };
  let result: Result;
  try {
    result = inside(act);
  } catch (error) {
    end(endBy(error));
    throw error;
  }
  followResult(result, inside, end);
  return result;
}

type End = (how: WorkEnd) => void;

/** Whether this is a promise, a thenable or a stream: work that goes on after it was returned. */
export function goesOn(result: unknown): boolean {
  return isObject(result) && (thenOf(result) !== undefined || streamKind(result) !== undefined);
}

function followResult(result: unknown, inside: RunInside, end: End): void {
  const then = isObject(result) ? thenOf(result) : undefined;
  if (then === undefined) {
    followStream(result, inside, end);
    return;
  }
  followThenable(result as object, then, {
    fulfilled: (value) => followStream(value, inside, end),
    rejected: (error) => end(endBy(error)),
    lost: () => end(COMPLETED),
  });
}

/** Who waits for a thenable. */
interface Waiting {
  fulfilled(value: unknown): void;
  rejected(error: unknown): void;
  /** It cannot be listened to. */
  lost(): void;
}

const nativeThen = Promise.prototype.then;

/** Who waits for thenables whose `then` was replaced: once, however often the host returns them. */
const waitingFor = new WeakMap<object, Set<Waiting>>();

function followThenable(thenable: object, then: Method, waiting: Waiting): void {
  if (then === nativeThen) {
    try {
      // Not awaited, and not chained on: what comes of this promise is nobody's concern.
      nativeThen.call(thenable, waiting.fulfilled, waiting.rejected);
    } catch {
      // A subclass that cannot be constructed by `then`.
      waiting.lost();
    }
    return;
  }
  const known = waitingFor.get(thenable);
  if (known !== undefined) {
    known.add(waiting);
    return;
  }
  const all = new Set([waiting]);
  const tell = (act: (one: Waiting) => void) => {
    for (const one of all) {
      all.delete(one);
      act(one);
    }
  };
  const isReplaced = replace(
    thenable,
    'then',
    function (this: unknown, onFulfilled: unknown, onRejected: unknown) {
      return Reflect.apply(then, this, [
        (value: unknown) => {
          tell((one) => one.fulfilled(value));
          return typeof onFulfilled === 'function' ? onFulfilled(value) : value;
        },
        (error: unknown) => {
          tell((one) => one.rejected(error));
          if (typeof onRejected === 'function') return onRejected(error);
          throw error;
        },
      ]);
    },
  );
  if (isReplaced) waitingFor.set(thenable, all);
  else waiting.lost();
}

type Method = (...args: unknown[]) => unknown;
type Stream = Record<string | symbol, unknown>;

function followStream(value: unknown, inside: RunInside, end: End): void {
  const kind = isObject(value) ? streamKind(value) : undefined;
  if (kind === undefined) end(COMPLETED);
  else if (kind === 'iterator') followIterator(value as Stream, { inside, end });
  else followIterable(value as Stream, { inside, end });
}

/** Who follows a stream. */
interface Follower {
  readonly inside: RunInside;
  readonly end: End;
}

/** Who follows streams whose methods were replaced: once, however often the host returns them. */
const followersOf = new WeakMap<object, Set<Follower>>();

/**
 * Adds who follows a stream.
 *
 * @returns all of them, where the stream's methods are still to be replaced.
 */
function addFollower(stream: object, follower: Follower): Set<Follower> | undefined {
  const known = followersOf.get(stream);
  if (known !== undefined) {
    known.add(follower);
    return undefined;
  }
  const all = new Set([follower]);
  followersOf.set(stream, all);
  return all;
}

function endAll(followers: Set<Follower>, how: WorkEnd): void {
  for (const follower of followers) {
    followers.delete(follower);
    follower.end(how);
  }
}

/** Runs a step inside the context of the one that followed last. */
function runStep<Result>(followers: Set<Follower>, act: () => Result): Result {
  const last = [...followers].at(-1);
  return last === undefined ? act() : last.inside(act);
}

function followIterable(iterable: Stream, follower: Follower): void {
  const followers = addFollower(iterable, follower);
  if (followers === undefined) return;
  followClosing(iterable, followers);
  followReading(iterable, followers);
  const iterate = methodOf(iterable, Symbol.asyncIterator);
  const isReplaced =
    iterate !== undefined &&
    replace(iterable, Symbol.asyncIterator, function (this: unknown, ...args) {
      const iterator = runStep(followers, () => Reflect.apply(iterate, this, args));
      if (isObject(iterator) && iterator !== iterable) {
        for (const one of followers) followIterator(iterator as Stream, one);
      }
      return iterator;
    });
  if (!isReplaced) endAll(followers, COMPLETED);
}

/** A stream of Node, which may be piped: it closes at its end. Listening to that starts nothing. */
function followClosing(stream: Stream, followers: Set<Follower>): void {
  const once = methodOf(stream, 'once');
  if (once === undefined || methodOf(stream, 'pipe') === undefined) return;
  attempt(() =>
    Reflect.apply(once, stream, [
      'close',
      () => {
        const { errored, readableEnded } = stream;
        if (errored != null) endAll(followers, endBy(errored));
        else endAll(followers, readableEnded === true ? COMPLETED : CANCELLED);
      },
    ]),
  );
}

/** A web stream, which may be read without its iterator. */
function followReading(stream: Stream, followers: Set<Follower>): void {
  const getReader = methodOf(stream, 'getReader');
  const pipeTo = methodOf(stream, 'pipeTo');
  if (getReader === undefined || pipeTo === undefined) return;
  const follow = (settled: unknown) => {
    const then = isObject(settled) ? thenOf(settled) : undefined;
    if (then !== nativeThen) return;
    nativeThen.call(
      settled,
      () => endAll(followers, COMPLETED),
      (error) => endAll(followers, endBy(error)),
    );
  };
  replace(stream, 'getReader', function (this: unknown, ...args) {
    const reader = Reflect.apply(getReader, this, args);
    follow((reader as { closed?: unknown }).closed);
    return reader;
  });
  replace(stream, 'pipeTo', function (this: unknown, ...args) {
    const piped = Reflect.apply(pipeTo, this, args);
    follow(piped);
    return piped;
  });
}

function followIterator(iterator: Stream, follower: Follower): void {
  const followers = addFollower(iterator, follower);
  if (followers === undefined) return;
  followClosing(iterator, followers);
  for (const name of ['next', 'return', 'throw']) {
    const method = methodOf(iterator, name);
    if (method === undefined) continue;
    const finished = name === 'return' ? CANCELLED : COMPLETED;
    const step: Waiting = {
      fulfilled: (result) => {
        if (isDone(result)) endAll(followers, finished);
      },
      rejected: (error) => endAll(followers, endBy(error)),
      lost: () => {},
    };
    const isReplaced = replace(iterator, name, function (this: unknown, ...args) {
      let result: unknown;
      try {
        result = runStep(followers, () => Reflect.apply(method, this, args));
      } catch (error) {
        step.rejected(error);
        throw error;
      }
      const then = isObject(result) ? thenOf(result) : undefined;
      if (then === undefined) step.fulfilled(result);
      else followThenable(result as object, then, step);
      return result;
    });
    if (!isReplaced) endAll(followers, COMPLETED);
  }
}

/** Replaces a method of the host's object. @returns whether that was possible. */
function replace(object: object, name: string | symbol, method: Method): boolean {
  return (
    attempt(() =>
      Object.defineProperty(object, name, { value: method, configurable: true, writable: true }),
    ) !== undefined
  );
}

/** What can be iterated step by step after it was returned: a generator, or an async iterable. */
function streamKind(value: object): 'iterator' | 'iterable' | undefined {
  const isAsync = methodOf(value, Symbol.asyncIterator) !== undefined;
  const isGenerator = attempt(() => Object.prototype.toString.call(value)) === '[object Generator]';
  if (!isAsync && !isGenerator) return undefined;
  return methodOf(value, 'next') === undefined ? 'iterable' : 'iterator';
}

function thenOf(value: object): Method | undefined {
  return methodOf(value, 'then');
}

/** A method of the host's object; `undefined` where there is none, or a getter or proxy throws. */
function methodOf(value: object, name: string | symbol): Method | undefined {
  const method = attempt(() => (value as Stream)[name]);
  return typeof method === 'function' ? (method as Method) : undefined;
}

function isDone(result: unknown): boolean {
  return attempt(() => (result as IteratorResult<unknown> | undefined)?.done) === true;
}

function isObject(value: unknown): value is object {
  return (typeof value === 'object' && value !== null) || typeof value === 'function';
}
