import { SpanStatusCode } from '@opentelemetry/api';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ATTR_ERROR_TYPE } from '../../semconv/attributes.js';
import { METRIC_LLAMA_STAGE_VERIFY_WINDOW_ERRORS as ERRORS } from '../../semconv/metrics.js';
import { SPAN_LLAMA_STAGE_VERIFY_WINDOW as WINDOW } from '../../semconv/spans.js';
import { PipelineTelemetry, VerifyWindowError, VerifyWindowScheduler } from '../../src/index.js';
import { ManualReader, providerWith } from '../metrics/collected.js';
import { Tracing, useApi } from '../tracing/sdk.js';

useApi();

/** A refusal; nothing where the reply is taken. */
function refusalOf(scheduler: VerifyWindowScheduler, id: unknown): VerifyWindowError | undefined {
  try {
    scheduler.completeNext(id as number);
    return undefined;
  } catch (error) {
    if (error instanceof VerifyWindowError) return error;
    throw error;
  }
}

const step = fc.record({
  what: fc.constantFrom('open', 'open', 'open', 'reply', 'reply', 'late', 'late', 'discard'),
  offset: fc.integer({ min: -12, max: 3 }),
});

test('a late reply is told from a protocol error exactly where its window was discarded', async () => {
  const firstId = fc.constantFrom(0, 1, 7, 2_147_483_600);
  const depth = fc.integer({ min: 1, max: 4 });
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 80, size: 'max' }),
      firstId,
      depth,
      async (steps, firstWindowId, depth) => {
        const tracing = new Tracing();
        const reader = new ManualReader();
        const telemetry = new PipelineTelemetry({
          tracerProvider: tracing.provider,
          meterProvider: providerWith(reader),
        });
        const scheduler = new VerifyWindowScheduler({ depth, firstWindowId });
        tracing.tracer.startActiveSpan('generation', () => telemetry.observe(scheduler));
        let nextId = firstWindowId;
        const inFlight: number[] = [];
        const discarded = new Set<number>();
        const blamed = new Set<number>();
        const codes: Record<string, number> = {};

        for (const { what, offset } of steps) {
          if (what === 'open' && scheduler.hasCapacity && nextId < 2_147_483_647) {
            inFlight.push(scheduler.open(0, 0).id);
            nextId++;
          } else if (what === 'discard') {
            for (const id of inFlight.splice(0)) discarded.add(id);
            scheduler.discardStale();
          } else if (what === 'reply' && inFlight.length > 0) {
            expect(refusalOf(scheduler, inFlight.shift())).toBeUndefined();
          } else if (what === 'late') {
            const [expected] = inFlight;
            const id = nextId + offset;
            if (id === expected) continue;
            const refusal = refusalOf(scheduler, id);
            const protocolError =
              expected === undefined ? 'reply_without_window' : 'reply_out_of_order';
            const code = discarded.has(id) ? 'reply_stale' : protocolError;
            expect(refusal?.code).toBe(code);
            expect(refusal?.message).toBe(
              expected === undefined
                ? 'verify window reply arrived with no in-flight window'
                : `verify window reply out of order: got ${id}, expected ${expected}`,
            );
            codes[code] = (codes[code] ?? 0) + 1;
            if (code === 'reply_out_of_order') blamed.add(expected as number);
            expect(scheduler.inFlight).toBe(inFlight.length);
          }
        }
        scheduler.close();
        expect(refusalOf(scheduler, [...discarded][0] ?? 0)?.code).toBe('closed');
        const collected = await reader.read();
        for (const code of ['reply_stale', 'reply_without_window', 'reply_out_of_order']) {
          expect(collected.sum(ERRORS, { [ATTR_ERROR_TYPE]: code })).toBe(codes[code] ?? 0);
        }
        // A window is not to blame for the late reply of another one.
        for (const { attributes, status } of tracing.spans(WINDOW)) {
          const isBlamed = blamed.has(attributes['llama_stage.verify_window.id'] as number);
          expect(status.code === SpanStatusCode.ERROR).toBe(isBlamed);
          expect(attributes[ATTR_ERROR_TYPE]).toBe(isBlamed ? 'reply_out_of_order' : undefined);
        }
      },
    ),
    { numRuns: 300 },
  );
});

describe('an id that is none', () => {
  const odd = fc.oneof(
    fc.constantFrom<unknown>(Symbol('1'), 1n, '1', [1], null, undefined, true, 0.5, Number.NaN),
    fc.anything({ withBigInt: true }).filter((id) => !Number.isInteger(id)),
  );

  test('is refused as no reply of any window, also after a discard', () => {
    fc.assert(
      fc.property(odd, fc.boolean(), (id, isOpen) => {
        const scheduler = new VerifyWindowScheduler({ depth: 2, firstWindowId: 0 });
        scheduler.open(0, 0);
        scheduler.open(0, 0);
        scheduler.discardStale();
        if (isOpen) scheduler.open(0, 0);
        const code = isOpen ? 'reply_out_of_order' : 'reply_without_window';
        expect(refusalOf(scheduler, id)?.code).toBe(code);
      }),
    );
  });
});

test('discards that follow each other are remembered however many they are', () => {
  const scheduler = new VerifyWindowScheduler({ depth: 2 });
  for (let i = 0; i < 5000; i++) {
    scheduler.open(0, 0);
    scheduler.discardStale();
  }
  for (const id of [1, 2, 2500, 5000]) expect(refusalOf(scheduler, id)?.code).toBe('reply_stale');
  expect(refusalOf(scheduler, 5001)?.code).toBe('reply_without_window');
});

test('of more discards apart than are remembered the latest are', () => {
  const scheduler = new VerifyWindowScheduler({ depth: 2 });
  for (let i = 0; i < 2000; i++) {
    scheduler.open(0, 0);
    scheduler.discardStale();
    scheduler.completeNext(scheduler.open(0, 0).id);
  }
  for (let id = 2 * 2000 - 1; id > 2 * (2000 - 1024); id -= 2) {
    expect(refusalOf(scheduler, id)?.code).toBe('reply_stale');
  }
  expect(refusalOf(scheduler, 1)?.code).toBe('reply_without_window');
  expect(refusalOf(scheduler, 2)?.code).toBe('reply_without_window');
});
