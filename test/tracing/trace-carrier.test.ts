import {
  type Context,
  context,
  createTraceState,
  propagation,
  ROOT_CONTEXT,
  type SpanContext,
  type TextMapPropagator,
  trace,
} from '@opentelemetry/api';
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
  injectTraceContext,
  type TraceCarrier,
} from '../../src/index.js';
import { hostileValues } from './hostile-values.js';
import { listenToDiag, Tracing, useApi } from './sdk.js';

useApi();

const hex = (length: number) =>
  fc
    .array(fc.constantFrom(...'0123456789abcdef'), { minLength: length, maxLength: length })
    .map((digits) => digits.join(''))
    .filter((digits) => /[^0]/.test(digits));

const traceState = fc
  .dictionary(
    fc.stringMatching(/^[a-z][a-z0-9_*/-]{0,20}$/),
    fc.stringMatching(/^[!-+\--<>-~]{1,40}$/),
    {
      minKeys: 1,
      maxKeys: 10,
    },
  )
  .map((entries) =>
    Object.entries(entries)
      .map(([key, value]) => `${key}=${value}`)
      .join(','),
  )
  .filter((state) => state.length <= 512)
  .map((state) => createTraceState(state));

const spanContext: fc.Arbitrary<SpanContext> = fc
  .record({
    traceId: hex(32),
    spanId: hex(16),
    traceFlags: fc.constantFrom(0, 1),
    traceState: fc.option(traceState, { nil: undefined }),
  })
  .map(({ traceState, ...ids }) => (traceState ? { ...ids, traceState } : ids));

/** What of a span context crosses from one process to another. */
function carried(from: Context) {
  const { traceId, spanId, traceFlags, traceState } = trace.getSpanContext(from) ?? {};
  return { traceId, spanId, traceFlags, traceState: traceState?.serialize() || undefined };
}

const forms: [string, (carrier: TraceCarrier) => TraceCarrier][] = [
  ['an object', (carrier) => carrier],
  ['JSON', (carrier) => JSON.parse(JSON.stringify(carrier))],
  ['bytes', (carrier) => decodeTraceCarrier(encodeTraceCarrier(carrier))],
];

describe.each(forms)('as %s', (_, pass) => {
  test('any trace context survives, with its state, sampled or not', () => {
    fc.assert(
      fc.property(spanContext, (sent) => {
        const from = trace.setSpanContext(ROOT_CONTEXT, sent);
        const carrier = injectTraceContext(from);
        expect(Object.keys(carrier)).toContain('traceparent');
        const received = extractTraceContext(pass(carrier));
        expect(carried(received)).toEqual(carried(from));
        expect(trace.getSpanContext(received)?.isRemote).toBe(true);
      }),
    );
  });

  test('no trace stays no trace', () => {
    const carrier = injectTraceContext(ROOT_CONTEXT);
    expect(carrier).toEqual({});
    expect(trace.getSpan(extractTraceContext(pass(carrier)))).toBeUndefined();
  });

  test('the fields of other propagators survive, too', () => {
    propagation.disable();
    const propagators = [new W3CTraceContextPropagator(), new W3CBaggagePropagator()];
    propagation.setGlobalPropagator(new CompositePropagator({ propagators }));
    const baggage = propagation.createBaggage({ tenant: { value: 'a: b\nc, ü=;' } });
    const received = extractTraceContext(
      pass(injectTraceContext(propagation.setBaggage(ROOT_CONTEXT, baggage))),
    );
    expect(propagation.getBaggage(received)?.getEntry('tenant')?.value).toBe('a: b\nc, ü=;');
  });
});

describe('bytes', () => {
  const field = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string(),
    fc.constantFrom('a', 'x: y', 'a\nb: c', '\r', ''),
  );

  test('hold exactly the fields of a carrier that could be those of a propagator', () => {
    fc.assert(
      fc.property(fc.dictionary(field, field, { noNullPrototype: true }), (carrier) => {
        const fields = Object.entries(carrier).filter(
          ([name, value]) =>
            /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name) && /^[\t\x20-\x7e]*$/.test(value),
        );
        const decoded = decodeTraceCarrier(encodeTraceCarrier(carrier));
        expect(Object.entries(decoded).toSorted()).toEqual(fields.toSorted());
      }),
    );
  });

  test('are few: what does not fit is left out, and the rest is kept', () => {
    const { traceparent } = injectTraceContext(
      trace.setSpan(ROOT_CONTEXT, new Tracing().tracer.startSpan('x')),
    );
    const carrier = {
      traceparent: traceparent as string,
      baggage: 'b'.repeat(4096),
      tracestate: 'a=1',
    };
    expect(decodeTraceCarrier(encodeTraceCarrier(carrier))).toEqual({
      traceparent,
      tracestate: 'a=1',
    });
  });

  test('are at most 4096, and all that may be used', () => {
    const sizes = fc.array(fc.nat(3000), { maxLength: 6 });
    fc.assert(
      fc.property(sizes, (lengths) => {
        const carrier = Object.fromEntries(
          lengths.map((length, i) => [`f${i}`, 'x'.repeat(length)]),
        );
        const bytes = encodeTraceCarrier(carrier);
        expect(bytes.length).toBeLessThanOrEqual(4096);
        const all = Object.entries(carrier)
          .map(([name, value]) => `${name}: ${value}`)
          .join('\n');
        if (all.length <= 4096) expect(new TextDecoder().decode(bytes)).toBe(all);
      }),
    );
    expect(encodeTraceCarrier({ a: 'x'.repeat(4093) })).toHaveLength(4096);
    expect(encodeTraceCarrier({ a: 'x'.repeat(4094) })).toHaveLength(0);
    const two = (length: number) => ({ a: 'x'.repeat(2045), b: 'x'.repeat(length) });
    expect(encodeTraceCarrier(two(2044))).toHaveLength(4096);
    expect(encodeTraceCarrier(two(2045))).toHaveLength(2048);
  });

  test('of no field are none', () => {
    expect(encodeTraceCarrier({})).toEqual(new Uint8Array());
    expect(decodeTraceCarrier(new Uint8Array())).toEqual({});
  });

  test('of any kind give strings, or nothing', () => {
    const line = fc.constantFrom(
      'traceparent: x',
      ': ',
      'a:b',
      'ü: x',
      'a: ü',
      '\0',
      '__proto__: x',
    );
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.array(line).map((lines) => new TextEncoder().encode(lines.join('\n'))),
    );
    fc.assert(
      fc.property(bytes, (wire) => {
        const carrier = decodeTraceCarrier(wire);
        expect(Object.values(carrier).every((value) => typeof value === 'string')).toBe(true);
        expect(Object.getPrototypeOf(carrier)).toBe(Object.prototype);
        extractTraceContext(carrier);
      }),
    );
    expect(decodeTraceCarrier(Buffer.alloc(5000, 'a: b\n'))).toEqual({});
  });

  test('may be a view into the bytes of a message', () => {
    const bytes = encodeTraceCarrier({ traceparent: 'x' });
    const message = Buffer.concat([Buffer.from('head'), bytes, Buffer.from('tail')]);
    expect(decodeTraceCarrier(message.subarray(4, 4 + bytes.length))).toEqual({ traceparent: 'x' });
  });
});

describe('what is no carrier', () => {
  const anything = fc.oneof(
    fc.anything({ withBigInt: true, withDate: true, withMap: true, withTypedArray: true }),
    fc.record({ traceparent: fc.anything(), tracestate: fc.anything() }),
    fc.record({ traceparent: fc.string() }),
  );

  function expectNoTrace(value: unknown): void {
    expect(trace.getSpan(extractTraceContext(value))).toBeUndefined();
    decodeTraceCarrier(encodeTraceCarrier(value as TraceCarrier));
    decodeTraceCarrier(value as Uint8Array);
  }

  test('gives a context without a trace, and never throws', () => {
    const complain = listenToDiag();
    fc.assert(fc.property(anything, expectNoTrace));
    for (const { make } of hostileValues) expectNoTrace(make());
    expect(complain).not.toHaveBeenCalled();
  });

  test.each([
    '',
    '00',
    `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`,
    `00-${'a'.repeat(32)}-${'0'.repeat(16)}-01`,
    `00-${'a'.repeat(31)}-${'b'.repeat(16)}-01`,
    `ff-${'a'.repeat(32)}-${'b'.repeat(16)}-01`,
    `00-${'A'.repeat(32)}-${'b'.repeat(16)}-01`,
    `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01-`,
  ])('like the traceparent "%s" gives a context without a trace', (traceparent) => {
    expect(trace.getSpan(extractTraceContext({ traceparent }))).toBeUndefined();
  });
});

test('an extracted context keeps what is active, but for the span', () => {
  const { tracer } = new Tracing();
  const key = Symbol('tenant');
  const active = trace
    .setSpan(ROOT_CONTEXT, tracer.startSpan('of the transport'))
    .setValue(key, 'a');
  context.with(active, () => {
    for (const carrier of [{}, undefined, { traceparent: 'broken' }]) {
      const received = extractTraceContext(carrier);
      expect(trace.getSpan(received)).toBeUndefined();
      expect(received.getValue(key)).toBe('a');
    }
  });
});

describe('a propagator that throws', () => {
  test('costs the trace and nothing else, and is reported once', () => {
    const complain = listenToDiag();
    propagation.disable();
    const fail = () => {
      throw new Error('broken propagator');
    };
    const broken: TextMapPropagator = { inject: fail, extract: fail, fields: () => [] };
    propagation.setGlobalPropagator(broken);
    const from = trace.setSpan(ROOT_CONTEXT, new Tracing().tracer.startSpan('generation'));
    for (let i = 0; i < 3; i++) {
      expect(injectTraceContext(from)).toEqual({});
      expect(trace.getSpan(extractTraceContext({ traceparent: 'x' }))).toBeUndefined();
    }
    expect(complain).toHaveBeenCalledTimes(1);
  });
});

test('without a propagator nothing is sent or read', () => {
  propagation.disable();
  const from = trace.setSpan(ROOT_CONTEXT, new Tracing().tracer.startSpan('generation'));
  expect(injectTraceContext(from)).toEqual({});
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  expect(trace.getSpan(extractTraceContext({ traceparent }))).toBeUndefined();
});
