/** Values that a host may throw, or a message may carry, with nothing in them to be relied on. */
export const hostileValues: { name: string; make: () => unknown; errorType: string }[] = [
  { name: 'undefined', make: () => undefined, errorType: '_OTHER' },
  { name: 'null', make: () => null, errorType: '_OTHER' },
  { name: 'a symbol', make: () => Symbol('s'), errorType: '_OTHER' },
  { name: 'a bigint', make: () => 1n, errorType: '_OTHER' },
  { name: 'a function', make: () => () => fail(), errorType: '_OTHER' },
  { name: 'an object without a prototype', make: () => Object.create(null), errorType: '_OTHER' },
  { name: 'a proxy', make: () => brokenProxy({}), errorType: '_OTHER' },
  { name: 'a proxy of an error', make: () => brokenProxy(new Error()), errorType: '_OTHER' },
  { name: 'a revoked proxy', make: revokedProxy, errorType: '_OTHER' },
  { name: 'getters that throw', make: () => brokenGetters({}), errorType: '_OTHER' },
  {
    name: 'an error with getters that throw',
    make: () => brokenGetters(new RangeError()),
    errorType: 'RangeError',
  },
  {
    name: 'an error without a constructor',
    make: () => Object.setPrototypeOf(new Error(), Object.create(Error.prototype, nothing)),
    errorType: '_OTHER',
  },
  {
    name: 'an error whose class has no text for its name',
    make: () =>
      new (class extends Error {
        static override readonly name = 7 as never;
      })(),
    errorType: '_OTHER',
  },
];

const nothing = { constructor: { value: null } };

function fail(): never {
  throw new Error('hostile');
}

function brokenProxy(target: object): object {
  const traps = Object.getOwnPropertyNames(Reflect);
  return new Proxy(target, Object.fromEntries(traps.map((trap) => [trap, fail])));
}

function revokedProxy(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

function brokenGetters(target: object): object {
  // The stack first: the engine reads an error's message to make it.
  const names = ['stack', 'constructor', 'name', 'message', 'code', 'traceparent', 'byteLength'];
  for (const name of names) {
    Object.defineProperty(target, name, { get: fail, enumerable: true, configurable: true });
  }
  return target;
}
