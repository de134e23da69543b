import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { type Context, propagation, type TextMapPropagator, trace } from '@opentelemetry/api';
import {
  CompositePropagator,
  W3CBaggagePropagator,
  W3CTraceContextPropagator,
} from '@opentelemetry/core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  decodeTraceCarrier,
  encodeTraceCarrier,
  extractTraceContext,
  StageTelemetry,
} from '../../src/index.js';
import { listenToDiag, useApi } from './sdk.js';

useApi();

const hex = (length: number) =>
  fc.stringMatching(new RegExp(`^[0-9a-f]{${length}}$`)).filter((digits) => /[^0]/.test(digits));

const traceparent = fc
  .tuple(hex(32), hex(16), fc.constantFrom('00', '01'))
  .map(([traceId, spanId, flags]) => `00-${traceId}-${spanId}-${flags}`);

const fields = fc.record(
  { traceparent, tracestate: fc.stringMatching(/^[a-z]{1,8}=[a-z0-9]{1,20}$/) },
  { requiredKeys: ['traceparent'] },
);

/** Some spelling of a name. */
const spelling = (name: string) =>
  fc
    .array(fc.boolean(), { minLength: name.length, maxLength: name.length })
    .map((upper) => [...name].map((c, i) => (upper[i] ? c.toUpperCase() : c)).join(''));

/** The fields of a propagator, the names in any case. */
const entries = fields.chain((carrier) =>
  fc.tuple(
    ...Object.entries(carrier).map(([name, value]) =>
      fc.tuple(spelling(name), fc.constant(value as string)),
    ),
  ),
);

type Entries = readonly (readonly [string, string])[];

const toBytes = (all: Entries) =>
  encodeTraceCarrier(Object.fromEntries(all.map(([name, value]) => [name.toLowerCase(), value])));

/** A copy of bytes amid others, as a protocol's frame has them. */
function framed(bytes: Uint8Array): { buffer: ArrayBuffer; at: number } {
  const buffer = new ArrayBuffer(bytes.length + 7);
  new Uint8Array(buffer).fill(0x41).set(bytes, 3);
  return { buffer, at: 3 };
}

/** Headers as Node's own parser fills them in. */
function incoming(all: Entries): IncomingMessage {
  const message = new IncomingMessage(new Socket());
  const lines = all.flat();
  const { _addHeaderLines: add } = message as unknown as {
    _addHeaderLines(lines: string[], count: number): void;
  };
  add.call(message, lines, lines.length);
  return message;
}

const forms: [string, (all: Entries) => unknown][] = [
  ['an object', (all) => Object.fromEntries(all)],
  [
    'an object without a prototype',
    (all) => Object.assign(Object.create(null), Object.fromEntries(all)),
  ],
  [
    'arrays of values',
    (all) => Object.fromEntries(all.map(([name, value]) => [name, [value, 'x']])),
  ],
  [
    'arrays whose first text is not the first value',
    (all) => Object.fromEntries(all.map(([name, value]) => [name, [undefined, 7, value]])),
  ],
  ['a Map', (all) => new Map<unknown, unknown>([[7, 'x'], ...all])],
  ['a Map of arrays', (all) => new Map(all.map(([name, value]) => [name, [value]]))],
  ['Headers', (all) => new Headers(all.map(([name, value]): [string, string] => [name, value]))],
  ['the headers of an IncomingMessage', (all) => incoming(all).headers],
  ['the distinct headers of an IncomingMessage', (all) => incoming(all).headersDistinct],
  [
    'what gets a value by a name in any case',
    (all) => ({
      get: (wanted: string) =>
        all.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value),
    }),
  ],
  [
    'an object with a method of its own that is called get',
    (all) => ({
      ...Object.fromEntries(all.map(([name, value]) => [name.toLowerCase(), value])),
      get: () => {
        throw new Error('another get');
      },
    }),
  ],
  ['a Uint8Array', toBytes],
  ['a Buffer', (all) => Buffer.from(toBytes(all))],
  ['an ArrayBuffer', (all) => toBytes(all).slice().buffer],
  [
    'a DataView into a frame',
    (all) => {
      const bytes = toBytes(all);
      const { buffer, at } = framed(bytes);
      return new DataView(buffer, at, bytes.length);
    },
  ],
  [
    'a Buffer into a frame',
    (all) => {
      const bytes = toBytes(all);
      const { buffer, at } = framed(bytes);
      return Buffer.from(buffer, at, bytes.length);
    },
  ],
];

/** What a traceparent says that was read. */
function read(context: Context): string | undefined {
  const from = trace.getSpanContext(context);
  if (from === undefined) return undefined;
  return `00-${from.traceId}-${from.spanId}-0${from.traceFlags}`;
}

describe.each(forms)('a carrier as %s', (_, form) => {
  test('is read, and passed on with the names of the propagator', () => {
    const complain = listenToDiag();
    fc.assert(
      fc.property(entries, (all) => {
        const expected = Object.fromEntries(
          all.map(([name, value]) => [name.toLowerCase(), value]),
        );
        const received = extractTraceContext(form(all));
        expect(read(received)).toBe(expected.traceparent);
        expect(trace.getSpanContext(received)?.traceState?.serialize()).toBe(expected.tracestate);
        const { carrier } = new StageTelemetry({ index: 1 }).startWindow(form(all));
        expect(carrier).toEqual(expected);
        expect(read(extractTraceContext(carrier))).toBe(expected.traceparent);
      }),
    );
    expect(complain).not.toHaveBeenCalled();
  });
});

describe('fields', () => {
  /** An object that tells which of its fields were read. */
  function watched(fields: Record<string, unknown>) {
    const reads: PropertyKey[] = [];
    const carrier = new Proxy(fields, {
      get: (target, name) => {
        reads.push(name);
        return Reflect.get(target, name);
      },
    });
    return { carrier, reads };
  }

  test('of others are neither read nor passed on', () => {
    const others = fc.dictionary(fc.string(), fc.anything(), { noNullPrototype: true });
    fc.assert(
      fc.property(entries, others, (all, more) => {
        const { carrier, reads } = watched({ ...more, ...Object.fromEntries(all) });
        const passedOn = new StageTelemetry({ index: 1 }).startWindow(carrier).carrier;
        const names = ['traceparent', 'tracestate'];
        expect(Object.keys(passedOn).filter((name) => !names.includes(name))).toEqual([]);
        // `get` tells whether it is like `Headers`.
        const allowed = [...names, 'get'];
        expect(reads.filter((name) => !allowed.includes(String(name).toLowerCase()))).toEqual([]);
      }),
    );
  });

  test('are those of the propagator that is registered', () => {
    propagation.disable();
    const seen: unknown[] = [];
    const custom: TextMapPropagator = {
      inject: () => {},
      extract: (from, carrier) => {
        seen.push(carrier);
        return from;
      },
      fields: () => ['x-trace'],
    };
    propagation.setGlobalPropagator(custom);
    const message = { traceparent: 'a', 'X-Trace': 'b', baggage: 'c', prompt: 'secret' };
    expect(new StageTelemetry({ index: 1 }).startWindow(message).carrier).toEqual({
      'x-trace': 'b',
    });
    expect(seen).toEqual([{ 'x-trace': 'b' }]);
  });

  test('of W3C are passed on where no propagator is registered', () => {
    propagation.disable();
    const message = { traceparent: 'a', baggage: 'c', prompt: 'secret' };
    expect(new StageTelemetry({ index: 1 }).startWindow(message).carrier).toEqual({
      traceparent: 'a',
      baggage: 'c',
    });
  });

  test('that cannot be read cost nothing but themselves', () => {
    const fail = () => {
      throw new Error('hostile');
    };
    const hostile = [
      new Proxy([], { get: fail }),
      Object.assign(['x'], { slice: fail }),
      Object.assign(['x'], { slice: () => 7 }),
      { toString: fail },
    ];
    fc.assert(
      fc.property(traceparent, fc.constantFrom(...hostile), (sent, tracestate) => {
        expect(read(extractTraceContext({ traceparent: sent, tracestate }))).toBe(sent);
        const getter = Object.defineProperty({ traceparent: sent }, 'tracestate', { get: fail });
        expect(read(extractTraceContext(getter))).toBe(sent);
      }),
    );
  });
});

describe('a traceparent', () => {
  test('survives whatever baggage there is, in bytes of bounded length', () => {
    propagation.disable();
    const propagators = [new W3CTraceContextPropagator(), new W3CBaggagePropagator()];
    propagation.setGlobalPropagator(new CompositePropagator({ propagators }));
    const length = fc.oneof(fc.nat(9000), fc.constantFrom(3900, 4000, 4096, 1e7));
    fc.assert(
      fc.property(entries, spelling('baggage'), length, (all, name, size) => {
        const sent = Object.fromEntries(all.map(([key, value]) => [key.toLowerCase(), value]));
        // The baggage first: so a composite propagator may write them.
        const bytes = encodeTraceCarrier({ [name]: `k=${'v'.repeat(size)}`, ...sent });
        expect(bytes.length).toBeLessThanOrEqual(4096);
        expect(decodeTraceCarrier(bytes)).toMatchObject(sent);
        expect(read(extractTraceContext(bytes))).toBe(sent.traceparent);
      }),
    );
  });
});

describe('what is far too much', () => {
  const sent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  const tenMebibytes = 10 * 2 ** 20;

  test.each<[string, () => unknown]>([
    ['a Buffer', () => Buffer.alloc(tenMebibytes, `traceparent: ${sent}\n`)],
    ['an ArrayBuffer', () => new ArrayBuffer(tenMebibytes)],
    ['a DataView', () => new DataView(new ArrayBuffer(tenMebibytes))],
    ['an array of doubles', () => new Float64Array(tenMebibytes / 8)],
    ['an array', () => new Array(tenMebibytes).fill('traceparent')],
    ['a text', () => sent.repeat(1e5)],
    ['a text as an object', () => new String(sent.repeat(1e5))],
    ['a value of a field', () => ({ traceparent: sent + 'x'.repeat(tenMebibytes) })],
  ])('as %s gives no trace', (_, make) => {
    const complain = listenToDiag();
    const value = make();
    expect(trace.getSpan(extractTraceContext(value))).toBeUndefined();
    expect(new StageTelemetry({ index: 1 }).startWindow(value).carrier).toEqual({});
    encodeTraceCarrier(value as never);
    expect(complain).not.toHaveBeenCalled();
  });

  /** A carrier that counts what is asked of it. */
  function counting<Carrier extends object>(target: Carrier) {
    const traps: Record<string, number> = {};
    const handler = Object.fromEntries(
      (['get', 'has', 'ownKeys', 'getOwnPropertyDescriptor', 'getPrototypeOf'] as const).map(
        (name) => [
          name,
          (...args: unknown[]) => {
            traps[name] = (traps[name] ?? 0) + 1;
            return (Reflect[name] as (...args: unknown[]) => unknown)(...args);
          },
        ],
      ),
    );
    const work = () => Object.values(traps).reduce((total, count) => total + count, 0);
    return { carrier: new Proxy(target, handler), work };
  }

  test.each([10, 1000, 100_000])('an object with %i other fields is asked little', (count) => {
    const others = Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, 'x']));
    const { carrier, work } = counting({ ...others, traceparent: sent });
    expect(read(extractTraceContext(carrier))).toBe(sent);
    expect(work()).toBeLessThan(20);
  });

  test.each([10, 1000, 100_000])('an array of %i values is asked little', (count) => {
    const { carrier: values, work } = counting(new Array(count).fill(7));
    extractTraceContext({ traceparent: values });
    expect(work()).toBeLessThan(5000);
  });

  test.each([10, 1000, 100_000])('a Map with %i other keys is looked through in part', (count) => {
    const others = Array.from({ length: count }, (_, i) => [`f${i}`, 'x'] as const);
    const map = new Map<string, string>([...others, ['traceparent', sent]]);
    let looked = 0;
    const keys = function* (this: Map<string, string>) {
      for (const key of Map.prototype.keys.call(this)) {
        looked++;
        yield key;
      }
    };
    Object.assign(map, { keys });
    expect(read(extractTraceContext(map))).toBe(sent);
    expect(looked).toBeLessThan(5000);
  });

  test('an iterator without an end is left', () => {
    const endless = Object.assign(new Map(), {
      *keys() {
        for (let i = 0; ; i++) yield `f${i}`;
      },
    });
    expect(trace.getSpan(extractTraceContext(endless))).toBeUndefined();
  });
});

test('a carrier that throws wherever it is touched gives no trace', () => {
  const fail = () => {
    throw new Error('hostile');
  };
  const complain = listenToDiag();
  const broken = [
    Object.assign(new Map(), { keys: fail, get: fail }),
    { get: fail },
    new Proxy({}, { get: fail }),
    new Proxy({}, { ownKeys: fail }),
    new Proxy({ traceparent: 'x' }, { getOwnPropertyDescriptor: fail }),
    new Proxy(new Uint8Array(8), { get: fail }),
    Object.defineProperty({}, 'get', { get: fail }),
  ];
  for (const value of broken) {
    expect(trace.getSpan(extractTraceContext(value))).toBeUndefined();
    expect(new StageTelemetry({ index: 1 }).startWindow(value).carrier).toEqual({});
  }
  expect(complain).not.toHaveBeenCalled();
});
