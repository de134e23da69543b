import { readFileSync } from 'node:fs';
import { trace } from '@opentelemetry/api';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { parse } from 'yaml';
import {
  ATTR_ERROR_TYPE,
  ATTR_GEN_AI_REQUEST_MODEL,
  ATTR_GEN_AI_USAGE_OUTPUT_TOKENS,
  ATTR_LLAMA_STAGE_GENERATION_CONTROL_RESULT,
  ATTR_LLAMA_STAGE_GENERATION_OUTCOME,
  ATTR_LLAMA_STAGE_TELEMETRY_PROBLEM,
  ERROR_TYPE_VALUES,
  LLAMA_STAGE_GENERATION_OUTCOME_VALUES,
} from '../../semconv/attributes.js';
import * as METRICS from '../../semconv/metrics.js';
import { SPAN_LLAMA_STAGE_GENERATION as GENERATION } from '../../semconv/spans.js';
import { PreaggregatedHistograms } from '../../src/histograms/index.js';
import {
  PipelineTelemetry,
  type PipelineTelemetryOptions,
  VerifyWindowError,
  VerifyWindowScheduler,
} from '../../src/index.js';
import { listenToDiag, Tracing, useApi } from '../tracing/sdk.js';
import { ManualReader, providerWith } from './collected.js';

const OUTPUT_TOKENS = METRICS.METRIC_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS;
const COUNT = METRICS.METRIC_LLAMA_STAGE_GENERATION_COUNT;
const COMPARISONS = METRICS.METRIC_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS;
const PROBLEMS = METRICS.METRIC_LLAMA_STAGE_TELEMETRY_PROBLEMS;
const OLDEST_AGE = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE;
const WINDOW_TIME = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME;
const SCHEDULERS = METRICS.METRIC_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT;
const DURATION = METRICS.METRIC_GEN_AI_SERVER_REQUEST_DURATION;
const PER_TOKEN = METRICS.METRIC_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN;
const FIRST_TOKEN = METRICS.METRIC_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN;

useApi();

function setUp(options: PipelineTelemetryOptions = {}) {
  const reader = new ManualReader();
  const tracing = new Tracing();
  const meterProvider = providerWith(reader);
  const telemetry = new PipelineTelemetry({
    meterProvider,
    tracerProvider: tracing.provider,
    ...options,
  });
  return { reader, tracing, meterProvider, telemetry };
}

describe('output tokens', () => {
  const commit = fc.record({ which: fc.nat(3), count: fc.integer({ min: 1, max: 1000 }) });

  test('count as they are committed, for each attribute set, and are on the span', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(commit, { maxLength: 20 }), async (commits) => {
        const { reader, telemetry, tracing } = setUp();
        const all = ['a', 'b', 'a', 'c'].map((requestModel) => {
          const generation = telemetry.generation({ depth: 1, requestModel }).start();
          return { generation, requestModel, tokens: 0 };
        });
        const expectCounted = async () => {
          const collected = await reader.read();
          for (const model of ['a', 'b', 'c']) {
            const expected = all
              .filter(({ requestModel }) => requestModel === model)
              .reduce((total, { tokens }) => total + tokens, 0);
            const attributes = { [ATTR_GEN_AI_REQUEST_MODEL]: model };
            expect(collected.sum(OUTPUT_TOKENS, attributes)).toBe(expected);
          }
        };
        await expectCounted();
        for (const { which, count } of commits) {
          const one = all[which];
          one?.generation.tokensCommitted(count);
          if (one !== undefined) one.tokens += count;
        }
        await expectCounted();
        for (const { generation, tokens } of all) {
          generation.end();
          // Too late: it has been reported.
          generation.tokensCommitted(99);
          const span = tracing.spans(GENERATION).at(-1);
          expect(span?.attributes[ATTR_GEN_AI_USAGE_OUTPUT_TOKENS]).toBe(tokens);
        }
        await expectCounted();
      }),
    );
  });

  test('of absurd counts stay a safe integer', async () => {
    const { reader, telemetry, tracing } = setUp();
    const generation = telemetry.generation({ depth: 1 }).start();
    for (let i = 0; i < 3; i++) generation.tokensCommitted(Number.MAX_SAFE_INTEGER);
    generation.end();
    expect((await reader.read()).sum(OUTPUT_TOKENS)).toBe(Number.MAX_SAFE_INTEGER);
    const { attributes } = tracing.span(GENERATION);
    expect(attributes[ATTR_GEN_AI_USAGE_OUTPUT_TOKENS]).toBe(Number.MAX_SAFE_INTEGER);
  });

  test('that came in one commit have no time between them', async () => {
    const commits = fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(commits, async (counts) => {
        const { reader, telemetry } = setUp();
        const generation = telemetry.generation({ depth: 1 }).start();
        for (const count of counts) generation.tokensCommitted(count);
        generation.end();
        const collected = await reader.read();
        expect(collected.count(PER_TOKEN)).toBe(counts.length > 1 ? 1 : 0);
        expect(collected.count(FIRST_TOKEN)).toBe(counts.length > 0 ? 1 : 0);
      }),
    );
  });
});

describe('generations', () => {
  test('have a series for every outcome from the first one on', async () => {
    const { reader, telemetry } = setUp();
    expect((await reader.read()).points(COUNT)).toEqual([]);
    const generation = telemetry.generation({ depth: 1 }).start();
    const counts = async () => {
      const collected = await reader.read();
      return LLAMA_STAGE_GENERATION_OUTCOME_VALUES.map((outcome) =>
        collected
          .points(COUNT)
          .filter(({ attributes }) => attributes[ATTR_LLAMA_STAGE_GENERATION_OUTCOME] === outcome)
          .map(({ value }) => value),
      );
    };
    expect(await counts()).toEqual(LLAMA_STAGE_GENERATION_OUTCOME_VALUES.map(() => [0]));
    generation.fail(new RangeError());
    expect(await counts()).toEqual(
      LLAMA_STAGE_GENERATION_OUTCOME_VALUES.map((outcome) => [outcome === 'failed' ? 1 : 0]),
    );
  });
});

describe('comparisons with a control', () => {
  test('count by their result and their attributes', async () => {
    const comparison = fc.record({ isEqual: fc.boolean(), run: fc.nat(2) });
    await fc.assert(
      fc.asyncProperty(fc.array(comparison), async (all) => {
        const { reader, telemetry } = setUp({ metricAttributes: { site: 'x' } });
        for (const { isEqual, run } of all) telemetry.recordControlComparison(isEqual, { run });
        const collected = await reader.read();
        for (const run of [0, 1, 2]) {
          const ofRun = all.filter((one) => one.run === run);
          for (const isEqual of [true, false]) {
            const attributes = {
              site: 'x',
              run,
              [ATTR_LLAMA_STAGE_GENERATION_CONTROL_RESULT]: isEqual ? 'equal' : 'different',
            };
            const points = collected
              .points(COMPARISONS)
              .filter((point) =>
                Object.entries(attributes).every(
                  ([name, value]) => point.attributes[name] === value,
                ),
              );
            // Both are there with the first one, so that the first difference shows as a rise.
            expect(points).toHaveLength(ofRun.length > 0 ? 1 : 0);
            expect(points[0]?.value ?? 0).toBe(
              ofRun.filter((one) => one.isEqual === isEqual).length,
            );
          }
        }
      }),
    );
  });
});

describe('the time of windows', () => {
  const plan = fc.array(
    fc.record({
      depth: fc.integer({ min: 1, max: 5 }),
      steps: fc.array(
        fc.record({
          what: fc.constantFrom('open', 'open', 'complete', 'discard'),
          passedMs: fc.constantFrom(0, 0.5, 3, 1000),
        }),
        { maxLength: 20 },
      ),
    }),
    { minLength: 1, maxLength: 4 },
  );

  test('is that of each, and the age that of the oldest in flight', async () => {
    await fc.assert(
      fc.asyncProperty(plan, async (plans) => {
        const { reader, telemetry } = setUp();
        let now = 0;
        let windowMs = 0;
        const queues = plans.map(({ depth, steps }) => {
          const scheduler = new VerifyWindowScheduler({ depth, clock: () => now });
          telemetry.observe(scheduler);
          return { scheduler, steps, openedAt: [] as number[], nextId: 1 };
        });
        const pass = (ms: number) => {
          now += ms;
          for (const { openedAt } of queues) windowMs += ms * openedAt.length;
        };
        for (const queue of queues) {
          for (const { what, passedMs } of queue.steps) {
            const { scheduler, openedAt } = queue;
            pass(passedMs);
            if (what === 'open' && scheduler.hasCapacity) {
              scheduler.open(0, 0);
              openedAt.push(now);
              queue.nextId++;
            } else if (what === 'complete' && openedAt.length > 0) {
              scheduler.completeNext(queue.nextId - openedAt.length);
              openedAt.shift();
            } else if (what === 'discard') {
              scheduler.discardStale();
              openedAt.splice(0);
            }
          }
        }
        const expectSeen = async () => {
          const collected = await reader.read();
          expect(collected.sum(WINDOW_TIME)).toBeCloseTo(windowMs / 1000, 6);
          const oldest = Math.max(
            0,
            ...queues.flatMap(({ openedAt }) => openedAt.map((at) => now - at)),
          );
          expect(collected.points(OLDEST_AGE).map(({ value }) => value)).toEqual([
            expect.closeTo(oldest / 1000, 6),
          ]);
        };
        await expectSeen();
        // One that is stuck grows old with every collection.
        pass(60_000);
        await expectSeen();
        for (const { scheduler, openedAt } of queues) {
          scheduler.close();
          openedAt.splice(0);
        }
        await expectSeen();
      }),
    );
  });
});

describe('problems of the telemetry itself', () => {
  beforeEach(() => {
    listenToDiag('warn');
  });

  async function problemsOf(reader: ManualReader): Promise<Record<string, number>> {
    const points = (await reader.read()).points(PROBLEMS);
    return Object.fromEntries(
      points.map(({ attributes, value }) => [
        String(attributes[ATTR_LLAMA_STAGE_TELEMETRY_PROBLEM]),
        value,
      ]),
    );
  }

  test('are none where there is none', async () => {
    const { reader, telemetry } = setUp();
    await telemetry.generation({ depth: 1 }).run(({ scheduler }) => scheduler.open(0, 0));
    expect(await problemsOf(reader)).toEqual({});
  });

  test('are attributes that were dropped', async () => {
    const { reader, telemetry } = setUp();
    using scheduler = new VerifyWindowScheduler({ depth: 1 });
    telemetry.observe(scheduler, { [ATTR_ERROR_TYPE]: 'x', object: {} as never, kept: 1 });
    expect(await problemsOf(reader)).toEqual({ dropped_attribute: 2 });
  });

  test('are generations that overflow, once each however many tokens they commit', async () => {
    const { reader, telemetry } = setUp({ maxAttributeSets: 2 });
    for (let i = 0; i < 5; i++) {
      const generation = telemetry.generation({ depth: 1, requestModel: `m${i}` }).start();
      for (let commits = 0; commits < 10; commits++) generation.tokensCommitted(1);
      generation.end();
    }
    expect(await problemsOf(reader)).toEqual({ overflow: 3 });
  });

  test('are schedulers that were forgotten', async () => {
    const { reader, telemetry } = setUp();
    const forget = () => {
      for (let i = 0; i < 3; i++) {
        const scheduler = new VerifyWindowScheduler({ depth: 1 });
        telemetry.observe(scheduler);
        scheduler.open(0, 0);
      }
    };
    forget();
    await vi.waitFor(async () => {
      globalThis.gc?.();
      expect((await reader.read()).sum(SCHEDULERS)).toBe(0);
    });
    expect(await problemsOf(reader)).toEqual({ forgotten_scheduler: 3 });
  });

  test('are hooks that fail, each time', async () => {
    const onWindowSpan = () => {
      throw new Error('broken hook');
    };
    const { reader, telemetry } = setUp({ onWindowSpan });
    const complain = listenToDiag('error');
    await telemetry.generation({ depth: 2 }).run(({ scheduler }) => {
      scheduler.open(0, 0);
      scheduler.open(0, 0);
    });
    expect(await problemsOf(reader)).toEqual({ failure: 2 });
    expect(complain).toHaveBeenCalledTimes(1);
  });
});

describe('the schema', () => {
  const manifest = parse(
    readFileSync(new URL('../../semconv/registry/manifest.yaml', import.meta.url), 'utf8'),
  ) as { schema_url: string };

  test.each([
    ['on the meter', undefined],
    ['with a producer', new PreaggregatedHistograms()],
  ])('is named by every scope, %s', async (_, histograms) => {
    const producer = histograms?.producer();
    const { reader, telemetry, tracing } = setUp(histograms && { histograms });
    await telemetry.generation({ depth: 1 }).run(({ scheduler, context }) => {
      scheduler.completeNext(scheduler.open(0, 0).id);
      const { traceId, spanId } = trace.getSpanContext(context) ?? {};
      const traceparent = `00-${traceId}-${spanId}-01`;
      telemetry
        .stage({ index: 1 })
        .startWindow({ traceparent })
        .compute(() => {});
    });
    const ours = (scope: { name: string }) => scope.name === 'llama-stage-otel';
    const { result } = await reader.read();
    const produced = (await producer?.collect())?.resourceMetrics.scopeMetrics ?? [];
    const scopes = [
      ...[...result.resourceMetrics.scopeMetrics, ...produced].map(({ scope }) => scope),
      ...tracing.spans().map(({ instrumentationScope }) => instrumentationScope),
    ].filter(ours);
    expect(scopes.length).toBeGreaterThan(2);
    for (const { schemaUrl } of scopes) expect(schemaUrl).toBe(manifest.schema_url);
  });
});

describe('the type of an error', () => {
  /** The package as it is in a new process: it has told no type yet. */
  async function fresh() {
    vi.resetModules();
    const { GenerationTelemetry } = await import('../../src/index.js');
    const reader = new ManualReader();
    const tracing = new Tracing();
    const generations = new GenerationTelemetry({
      meterProvider: providerWith(reader),
      tracerProvider: tracing.provider,
    });
    const typeOf = (error: unknown) => {
      generations.start({ depth: 1 }).fail(error);
      return tracing.spans(GENERATION).at(-1)?.attributes[ATTR_ERROR_TYPE];
    };
    return { reader, typeOf };
  }

  afterEach(() => {
    vi.resetModules();
  });

  /** A class as a minifier or a bundler leaves it. */
  const classNamed = (name: string) =>
    Object.defineProperty(class extends Error {}, 'name', { value: name });
  const withCode = (code: unknown) => Object.assign(new Error('x'), { code });
  const withName = (name: unknown) => Object.assign(new Error('x'), { name });

  test.each<[string, () => unknown, string]>([
    ['a system error', () => withCode('ECONNRESET'), 'ECONNRESET'],
    [
      'an error of Node',
      () => withCode('ERR_STREAM_PREMATURE_CLOSE'),
      'ERR_STREAM_PREMATURE_CLOSE',
    ],
    ['a code that is a number', () => withCode(404), 'Error'],
    ['a code that is a text', () => withCode('E: the prompt was "x"'), 'Error'],
    ['a code that is too long', () => withCode(`E${'X'.repeat(100)}`), 'Error'],
    ['a name of its own', () => withName('TimeoutError'), 'TimeoutError'],
    ['a name that is Error', () => withName('Error'), 'Error'],
    ['a name that is no name', () => withName('a b'), 'Error'],
    ['a minified name', () => withName('t'), 'Error'],
    ['a class', () => new (classNamed('ModelUnavailable'))(), 'ModelUnavailable'],
    ['a minified class', () => new (classNamed('qt'))(), '_OTHER'],
    [
      'a minified class with a code',
      () => Object.assign(new (classNamed('t'))(), { code: 'EPIPE' }),
      'EPIPE',
    ],
    [
      'a minified class that names itself',
      () => Object.assign(new (classNamed('t'))(), { name: 't' }),
      '_OTHER',
    ],
    ['no error', () => ({ name: 'TypeError' }), '_OTHER'],
  ])('of %s', async (_, make, expected) => {
    const { typeOf } = await fresh();
    expect(typeOf(make())).toBe(expected);
  });

  test('is one of 64 in a process, our own codes always among them', async () => {
    const { reader, typeOf } = await fresh();
    const seen = new Set(Array.from({ length: 500 }, (_, i) => typeOf(withName(`Kind${i}`))));
    expect(seen).toContain('Kind0');
    expect(seen).toContain('_OTHER');
    for (const { name } of [new TypeError(), new RangeError()]) seen.add(typeOf(withName(name)));
    for (const code of ERROR_TYPE_VALUES) {
      const { VerifyWindowError: Own } = await import('../../src/index.js');
      expect(Own).not.toBe(VerifyWindowError);
      expect(typeOf(new Own(code, 'x'))).toBe(code);
      seen.add(code);
    }
    // Those that were told before still are.
    expect(typeOf(withName('Kind0'))).toBe('Kind0');
    expect(seen.size).toBeLessThanOrEqual(64);
    const types = (await reader.read())
      .histogram(DURATION)
      .map(({ attributes }) => attributes[ATTR_ERROR_TYPE]);
    expect(new Set(types).size).toBeLessThanOrEqual(64);
  });
});
