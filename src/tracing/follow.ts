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
  return isObject(result) && (isThenable(result) || streamKind(result) !== undefined);
}

function followResult(result: unknown, inside: RunInside, end: End): void {
  if (isObject(result) && isThenable(result)) followThenable(result, inside, end);
  else followStream(result, inside, end);
}

const nativeThen = Promise.prototype.then;

function followThenable(thenable: PromiseLike<unknown>, inside: RunInside, end: End): void {
  const fulfilled = (value: unknown) => followStream(value, inside, end);
  const rejected = (error: unknown) => end(endBy(error));
  const { then } = thenable;
  try {
    if (then === nativeThen) {
      // Not awaited, and not chained on: what comes of this promise is nobody's concern.
      nativeThen.call(thenable, fulfilled, rejected);
      return;
    }
  } catch {
    // A subclass that cannot be constructed by `then`.
    end(COMPLETED);
    return;
  }
  replace(
    thenable,
    'then',
    end,
    function (this: unknown, onFulfilled: unknown, onRejected: unknown) {
      return Reflect.apply(then, this, [
        (value: unknown) => {
          fulfilled(value);
          return typeof onFulfilled === 'function' ? onFulfilled(value) : value;
        },
        (error: unknown) => {
          rejected(error);
          if (typeof onRejected === 'function') return onRejected(error);
          throw error;
        },
      ]);
    },
  );
}

type Method = (...args: unknown[]) => unknown;
type Stream = Record<string | symbol, Method | undefined>;

function followStream(value: unknown, inside: RunInside, end: End): void {
  const kind = isObject(value) ? streamKind(value) : undefined;
  if (kind === undefined) end(COMPLETED);
  else if (kind === 'iterator') followIterator(value as Stream, inside, end);
  else followIterable(value as Stream, inside, end);
}

function followIterable(iterable: Stream, inside: RunInside, end: End): void {
  const iterate = iterable[Symbol.asyncIterator] as Method;
  replace(iterable, Symbol.asyncIterator, end, function (this: unknown, ...args) {
    const iterator = inside(() => Reflect.apply(iterate, this, args));
    if (isObject(iterator)) followIterator(iterator as Stream, inside, end);
    return iterator;
  });
}

function followIterator(iterator: Stream, inside: RunInside, end: End): void {
  for (const name of ['next', 'return', 'throw']) {
    const method = iterator[name];
    if (typeof method !== 'function') continue;
    const finished = name === 'return' ? CANCELLED : COMPLETED;
    const check = (result: unknown) => {
      if ((result as IteratorResult<unknown> | undefined)?.done === true) end(finished);
    };
    replace(iterator, name, end, function (this: unknown, ...args) {
      try {
        const result = inside(() => Reflect.apply(method, this, args));
        if (isObject(result) && isThenable(result)) {
          nativeThen.call(Promise.resolve(result), check, (error) => end(endBy(error)));
        } else {
          check(result);
        }
        return result;
      } catch (error) {
        end(endBy(error));
        throw error;
      }
    });
  }
}

/** Replaces a method of the host's object; one that cannot be replaced is not followed further. */
function replace(object: object, name: string | symbol, end: End, method: Method): void {
  try {
    Object.defineProperty(object, name, { value: method, configurable: true, writable: true });
  } catch {
    end(COMPLETED);
  }
}

/** What can be iterated step by step after it was returned: a generator, or an async iterable. */
function streamKind(value: object): 'iterator' | 'iterable' | undefined {
  try {
    const isAsync = typeof (value as Stream)[Symbol.asyncIterator] === 'function';
    const isGenerator = Object.prototype.toString.call(value) === '[object Generator]';
    if (!isAsync && !isGenerator) return undefined;
    return typeof (value as Stream).next === 'function' ? 'iterator' : 'iterable';
  } catch {
    // A proxy or a getter that throws: what it is, is for the host to find out.
    return undefined;
  }
}

function isThenable(value: object): value is PromiseLike<unknown> {
  try {
    return typeof (value as PromiseLike<unknown>).then === 'function';
  } catch {
    return false;
  }
}

function isObject(value: unknown): value is object {
  return (typeof value === 'object' && value !== null) || typeof value === 'function';
}
