import { errorTypeOf } from './failure.js';

/**
 * Runs `act`. Calls `done`, which must not throw, when it has returned, thrown or settled, with the
 * kind of its error.
 */
export function settle<Result>(act: () => Result, done: (errorType?: string) => void): Result {
  let result: Result;
  try {
    result = act();
  } catch (error) {
    done(errorTypeOf(error));
    throw error;
  }
  if (!isThenable(result)) {
    done();
    return result;
  }
  return Promise.resolve(result).then(
    (value) => {
      done();
      return value;
    },
    (error: unknown) => {
      done(errorTypeOf(error));
      throw error;
    },
  ) as Result;
}

function isThenable(value: unknown): boolean {
  try {
    return typeof (value as PromiseLike<unknown> | null | undefined)?.then === 'function';
  } catch {
    // A proxy or a getter that throws: what it is, is for the host to find out.
    return false;
  }
}
