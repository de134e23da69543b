import { setImmediate } from 'node:timers/promises';
import {
  type Attributes,
  context,
  metrics as metricsApi,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { type IAttributesProcessor, MeterProvider } from '@opentelemetry/sdk-metrics';
import { AlwaysOffSampler, ParentBasedSampler } from '@opentelemetry/sdk-trace-base';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import * as ATTRIBUTES from '../../semconv/attributes.js';
import {
  METRIC_GEN_AI_SERVER_REQUEST_DURATION,
  METRIC_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
  METRIC_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
} from '../../semconv/metrics.js';
import {
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import { SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION } from '../../src/guard.js';
import {
  type Generation,
  type GenerationOptions,
  GenerationTelemetry,
  type GenerationTelemetryOptions,
  pipelineAttributes,
  summaryAttributes,
  VerifyWindowError,
  VerifyWindowMetrics,
  type VerifyWindowScheduler,
} from '../../src/index.js';
import { ManualReader, providerWith } from '../metrics/collected.js';
import { hostileValues } from './hostile-values.js';
import { brokenProcessor, isParent, listenToDiag, nanoseconds, Tracing, useApi } from './sdk.js';

const GENERATION = SPAN_LLAMA_STAGE_GENERATION;
const WINDOW = SPAN_LLAMA_STAGE_VERIFY_WINDOW;
const DURATION = METRIC_GEN_AI_SERVER_REQUEST_DURATION;
const FIRST_TOKEN = METRIC_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN;
const PER_TOKEN = METRIC_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN;
const ERROR_TYPE = ATTRIBUTES.ATTR_ERROR_TYPE;

/** What the GenAI conventions require of every generation. */
const REQUIRED = {
  [ATTRIBUTES.ATTR_GEN_AI_OPERATION_NAME]: 'text_completion',
  [ATTRIBUTES.ATTR_GEN_AI_PROVIDER_NAME]: 'llama_stage',
};

const OUTCOME = ATTRIBUTES.ATTR_LLAMA_STAGE_GENERATION_OUTCOME;

useApi();

function setUp(options: GenerationTelemetryOptions = {}, tracing = new Tracing()) {
  const reader = new ManualReader();
  const meterProvider = providerWith(reader);
  const generations = new GenerationTelemetry({
    tracerProvider: tracing.provider,
    meterProvider: meterProvider,
    ...options,
  });
  return { tracing, reader, meterProvider, generations };
}

/** Moves what the telemetry reads the time from. */
function useTime() {
  let passedMs = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => passedMs);
  return { pass: (ms: number) => (passedMs += ms) };
}

describe('a generation', () => {
  test('is a span with its windows below it, and all that its scheduler has to tell', async () => {
    const { tracing, generations } = setUp();
    const scheduler = await generations.run({ depth: 2 }, async ({ scheduler }) => {
      scheduler.open(0, 0);
      await setImmediate();
      scheduler.open(8, 0);
      scheduler.completeNext(1);
      return scheduler;
    });
    const generation = tracing.span(GENERATION);
    expect(generation).toMatchObject({ kind: SpanKind.INTERNAL, parentSpanContext: undefined });
    expect(generation.status).toEqual({ code: SpanStatusCode.UNSET });
    const stats = scheduler.stats();
    expect(generation.attributes).toEqual({
      ...REQUIRED,
      [OUTCOME]: 'completed',
      [ATTRIBUTES.ATTR_GEN_AI_USAGE_OUTPUT_TOKENS]: 0,
      ...pipelineAttributes(stats),
      ...summaryAttributes(stats),
    });
    const windows = tracing.spans(WINDOW);
    expect(windows).toHaveLength(2);
    expect(windows.every((window) => isParent(generation, window))).toBe(true);
    expect(generation.instrumentationScope.name).toBe('llama-stage-otel');
  });

  test('is a child of the span that is active, and active itself while it decodes', async () => {
    const { tracing, generations } = setUp();
    await tracing.tracer.startActiveSpan('request', async (request) => {
      await generations.run({ depth: 1 }, async () => {
        await setImmediate();
        tracing.tracer.startSpan('draft').end();
      });
      request.end();
    });
    expect(isParent(tracing.span('request'), tracing.span(GENERATION))).toBe(true);
    expect(isParent(tracing.span(GENERATION), tracing.span('draft'))).toBe(true);
  });

  test('begins before its windows and ends after them', async () => {
    const { tracing, generations } = setUp();
    for (let i = 0; i < 20; i++) {
      await generations.run({ depth: 2 }, ({ scheduler }) => {
        scheduler.open(0, 0);
        scheduler.completeNext(1);
        scheduler.open(8, 0);
      });
    }
    for (const generation of tracing.spans(GENERATION)) {
      for (const window of tracing.spans(WINDOW).filter((span) => isParent(generation, span))) {
        expect(nanoseconds(window.startTime)).toBeGreaterThanOrEqual(
          nanoseconds(generation.startTime),
        );
        expect(nanoseconds(window.endTime)).toBeLessThanOrEqual(nanoseconds(generation.endTime));
      }
    }
  });

  test.each<[string, (scheduler: VerifyWindowScheduler) => unknown]>([
    ['returns', () => 1],
    ['resolves', async () => setImmediate()],
    [
      'throws',
      () => {
        throw new Error('decode');
      },
    ],
    [
      'rejects',
      async () => {
        throw new Error('decode');
      },
    ],
  ])('that %s has its scheduler closed and its windows ended', async (_, end) => {
    const { tracing, generations } = setUp();
    let used: VerifyWindowScheduler | undefined;
    const running = generations.run({ depth: 2 }, ({ scheduler }) => {
      used = scheduler;
      scheduler.open(0, 0);
      return end(scheduler);
    });
    await running.catch(() => {});
    expect(used?.isClosed).toBe(true);
    expect(tracing.span(WINDOW).attributes).toMatchObject({
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON]: 'closed',
    });
  });

  test('gives back what its decode loop returns, and may close the scheduler itself', async () => {
    const { generations } = setUp();
    const result = {};
    expect(await generations.run({ depth: 1 }, () => result)).toBe(result);
    expect(await generations.run({ depth: 1 }, async () => result)).toBe(result);
    expect(await generations.run({ depth: 1 }, ({ scheduler }) => scheduler.close())).toBe(
      undefined,
    );
  });

  test('passes on how its scheduler is to be made', async () => {
    const { generations, tracing } = setUp();
    const options = { depth: 3, firstWindowId: 100, clock: () => 0 };
    const depth = await generations.run(options, ({ scheduler }) => {
      scheduler.open(0, 0);
      return scheduler.depth;
    });
    expect(depth).toBe(3);
    expect(tracing.span(WINDOW).attributes).toMatchObject({
      [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID]: 100,
    });
  });

  test('that is not sampled has no spans, but figures all the same', async () => {
    const sampler = new ParentBasedSampler({ root: new AlwaysOffSampler() });
    const { tracing, reader, generations } = setUp({}, new Tracing({ sampler }));
    await generations.run({ depth: 1 }, ({ scheduler, tokensCommitted }) => {
      scheduler.completeNext(scheduler.open(0, 0).id);
      tokensCommitted(1);
      tokensCommitted(2);
      tracing.tracer.startSpan('of the host').end();
    });
    expect(tracing.spans()).toEqual([]);
    const collected = await reader.read();
    expect([DURATION, FIRST_TOKEN, PER_TOKEN].map((name) => collected.count(name))).toEqual([
      1, 1, 1,
    ]);
  });

  test('is counted by the bridge that it is given, with its attributes', async () => {
    const reader = new ManualReader();
    const metrics = new VerifyWindowMetrics({ meterProvider: providerWith(reader) });
    const { generations } = setUp({ metrics });
    await generations.run({ depth: 1, metricAttributes: { model: 'm' } }, ({ scheduler }) => {
      scheduler.open(0, 0);
    });
    const collected = await reader.read();
    expect(collected.sum(METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED, { model: 'm' })).toBe(1);
  });

  test('hands its window spans to the hook', async () => {
    const { tracing, generations } = setUp({
      onWindowSpan: (span) => span.setAttribute('host', true),
    });
    await generations.run({ depth: 1 }, ({ scheduler }) => {
      scheduler.open(0, 0);
    });
    expect(tracing.span(WINDOW).attributes).toMatchObject({ host: true });
  });
});

describe('a scheduler that cannot be', () => {
  test.each([{ depth: 0.5 }, {}, undefined, null])('is refused: %j', async (options) => {
    const { tracing, reader, generations } = setUp();
    const decode = vi.fn();
    const running = generations.run(options as GenerationOptions, decode);
    await expect(running).rejects.toThrow(VerifyWindowError);
    expect(decode).not.toHaveBeenCalled();
    expect(tracing.span(GENERATION)).toMatchObject({
      attributes: { ...REQUIRED, [ERROR_TYPE]: 'invalid_argument', [OUTCOME]: 'failed' },
      status: { code: SpanStatusCode.ERROR },
    });
    const [point] = (await reader.read()).histogram(DURATION);
    expect(point?.attributes).toEqual({
      ...REQUIRED,
      [ERROR_TYPE]: 'invalid_argument',
      [OUTCOME]: 'failed',
    });
  });
});

describe('the histograms', () => {
  /** Runs one generation, and gives what was recorded of it: seconds by name. */
  async function secondsOf(decode: (pass: (ms: number) => void, run: Generation) => void) {
    const { reader, generations } = setUp();
    const { pass } = useTime();
    await generations.run({ depth: 1 }, (generation) => decode(pass, generation)).catch(() => {});
    const collected = await reader.read();
    return [DURATION, FIRST_TOKEN, PER_TOKEN].map((name) => {
      const [point] = collected.histogram(name);
      return point?.value.sum;
    });
  }

  test('hold the request, the time to the first token and that of each further one', async () => {
    const seconds = await secondsOf((pass, { tokensCommitted }) => {
      pass(200);
      tokensCommitted(1);
      pass(300);
      tokensCommitted(4);
      pass(100);
      tokensCommitted(2);
      pass(50);
    });
    expect(seconds).toEqual([0.65, 0.2, expect.closeTo(0.4 / 6)]);
  });

  test('hold no time of tokens where there was none', async () => {
    const seconds = await secondsOf((pass) => pass(100));
    expect(seconds).toEqual([0.1, undefined, undefined]);
  });

  test('hold no time for each further token where there was one', async () => {
    const seconds = await secondsOf((pass, { tokensCommitted }) => {
      pass(200);
      tokensCommitted(1);
      pass(100);
    });
    expect(seconds).toEqual([expect.closeTo(0.3), 0.2, undefined]);
  });

  test('hold only the request of one that failed', async () => {
    const seconds = await secondsOf((pass, { tokensCommitted }) => {
      tokensCommitted(1);
      pass(100);
      tokensCommitted(1);
      throw new Error('decode');
    });
    expect(seconds).toEqual([0.1, undefined, undefined]);
  });

  test.each([0, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, '3', undefined])(
    'take %s for no tokens',
    async (count) => {
      const seconds = await secondsOf((_, { tokensCommitted }) => {
        tokensCommitted(count as number);
      });
      expect(seconds).toEqual([0, undefined, undefined]);
    },
  );

  test('carry what the GenAI conventions require, and the models where they are known', async () => {
    const { reader, tracing, generations } = setUp({ providerName: 'acme' });
    const models = { requestModel: 'llama-3.1-70b', responseModel: 'llama-3.1-70b-q8' };
    await generations.run(
      { depth: 1, operationName: 'chat', ...models, metricAttributes: { run: 'a' } },
      ({ tokensCommitted }) => {
        tokensCommitted(1);
        tokensCommitted(1);
      },
    );
    const attributes: Attributes = {
      [ATTRIBUTES.ATTR_GEN_AI_OPERATION_NAME]: 'chat',
      [ATTRIBUTES.ATTR_GEN_AI_PROVIDER_NAME]: 'acme',
      [ATTRIBUTES.ATTR_GEN_AI_REQUEST_MODEL]: 'llama-3.1-70b',
      [ATTRIBUTES.ATTR_GEN_AI_RESPONSE_MODEL]: 'llama-3.1-70b-q8',
    };
    const collected = await reader.read();
    for (const name of [DURATION, FIRST_TOKEN, PER_TOKEN]) {
      const points = collected.histogram(name);
      expect(points.map((point) => point.attributes)).toEqual([
        { ...attributes, run: 'a', ...(name === DURATION && { [OUTCOME]: 'completed' }) },
      ]);
      expect(collected.metric(name)?.descriptor.unit).toBe('s');
    }
    expect(tracing.span(GENERATION).attributes).toMatchObject(attributes);
    expect(tracing.span(GENERATION).attributes).not.toHaveProperty('run');
  });

  test('are recorded in the context of the generation, where exemplars are taken from', async () => {
    const seen: (string | undefined)[] = [];
    const watch: IAttributesProcessor = {
      process: (attributes, from) => {
        seen.push(from && trace.getSpanContext(from)?.spanId);
        return attributes;
      },
    };
    const views = [{ instrumentName: 'gen_ai.server.*', attributesProcessors: [watch] }];
    const meterProvider = new MeterProvider({ readers: [new ManualReader()], views });
    const { tracing, generations } = setUp({ meterProvider: meterProvider });
    await generations.run({ depth: 1 }, ({ tokensCommitted }) => {
      tokensCommitted(1);
      tokensCommitted(1);
    });
    expect(seen).toEqual(Array(3).fill(tracing.span(GENERATION).spanContext().spanId));
  });

  test('go to a global provider that is registered after the generation began', async () => {
    const generations = new GenerationTelemetry();
    const reader = new ManualReader();
    await generations.run({ depth: 1 }, () => {
      metricsApi.setGlobalMeterProvider(providerWith(reader));
    });
    const collected = await reader.read();
    expect(collected.count(DURATION)).toBe(1);
    expect(collected.result.resourceMetrics.scopeMetrics[0]?.scope.name).toBe('llama-stage-otel');
  });
});

test('spans come from a global provider that is registered late', async () => {
  const generations = new GenerationTelemetry();
  const run = () =>
    generations.run({ depth: 1 }, ({ scheduler }) => {
      scheduler.open(0, 0);
    });
  await run();
  const tracing = new Tracing();
  trace.setGlobalTracerProvider(tracing.provider);
  await run();
  expect(isParent(tracing.span(GENERATION), tracing.span(WINDOW))).toBe(true);
});

describe('what the decode loop throws', () => {
  class OutOfMemory extends Error {}
  const secret = 'Once upon a time';
  const told: [string, () => unknown, string][] = [
    ['an error', () => new Error(secret), 'Error'],
    ['an error of the language', () => new TypeError(secret), 'TypeError'],
    ['an error of the host', () => new OutOfMemory(secret), 'OutOfMemory'],
    ['a refused call', () => new VerifyWindowError('depth_exceeded', secret), 'depth_exceeded'],
    ['text', () => secret, '_OTHER'],
    ['an object that says it is an error', () => ({ name: secret, message: secret }), '_OTHER'],
    ['a class without a name', () => new (class extends Error {})(secret), '_OTHER'],
    ['a name of its own', () => Object.assign(new Error(), { name: secret }), 'Error'],
    [
      'a class of its own',
      () => Object.assign(new Error(), { constructor: { name: secret } }),
      'Error',
    ],
    ['a code that is none', () => new VerifyWindowError(secret as 'closed', secret), '_OTHER'],
    [
      'a class whose name is no name',
      () => {
        Object.defineProperty(OutOfMemory, 'name', { value: secret });
        return new OutOfMemory();
      },
      '_OTHER',
    ],
    [
      'a class whose name is too long',
      () => {
        Object.defineProperty(OutOfMemory, 'name', { value: 'x'.repeat(1000) });
        return new OutOfMemory();
      },
      '_OTHER',
    ],
    ...hostileValues.map((value): [string, () => unknown, string] => [
      `something hostile: ${value.name}`,
      () => value.make(),
      value.errorType,
    ]),
  ];

  describe.each(told)('%s', (_, make, errorType) => {
    test.each<[string, (error: unknown) => unknown]>([
      [
        'at once',
        (error) => {
          throw error;
        },
      ],
      [
        'later',
        async (error) => {
          await setImmediate();
          throw error;
        },
      ],
    ])('is thrown on %s, and its kind alone is told', async (_when, fail) => {
      const complain = listenToDiag();
      const { tracing, reader, generations } = setUp();
      const error = make();
      const outcome = await generations
        .run({ depth: 1 }, () => fail(error))
        .then(
          () => 'it returned',
          (thrown: unknown) => ({ thrown }),
        );
      expect((outcome as { thrown: unknown }).thrown === error).toBe(true);
      const { attributes, events, status } = tracing.span(GENERATION);
      expect(status).toEqual({ code: SpanStatusCode.ERROR });
      expect(attributes[ERROR_TYPE]).toBe(errorType);
      expect(events).toEqual([]);
      expect(JSON.stringify(attributes)).not.toContain(secret);
      const points = (await reader.read()).histogram(DURATION);
      expect(points.map((point) => point.attributes)).toEqual([
        { ...REQUIRED, [ERROR_TYPE]: errorType, [OUTCOME]: 'failed' },
      ]);
      expect(complain).not.toHaveBeenCalled();
    });
  });
});

describe('what is broken in the host', () => {
  const fail = () => {
    throw new Error('broken');
  };
  const brokenMeters = () => {
    const provider = providerWith(new ManualReader());
    const meter = provider.getMeter(SCOPE_NAME, SCOPE_VERSION, { schemaUrl: SCHEMA_URL });
    Object.assign(meter, { createHistogram: fail });
    return provider;
  };
  const brokenMetrics = () => Object.assign(new VerifyWindowMetrics(), { observe: fail });
  const brokenProvider = () => Object.assign(new Tracing().provider, { getTracer: fail });

  const cases: [string, () => GenerationTelemetryOptions][] = [
    [
      'a processor at the start',
      () => {
        return {
          tracerProvider: new Tracing({ processors: [brokenProcessor('onStart')] }).provider,
        };
      },
    ],
    [
      'a processor at the end',
      () => {
        return { tracerProvider: new Tracing({ processors: [brokenProcessor('onEnd')] }).provider };
      },
    ],
    ['a tracer provider', () => ({ tracerProvider: brokenProvider() })],
    ['a meter', () => ({ meterProvider: brokenMeters() })],
    ['a bridge', () => ({ metrics: brokenMetrics() })],
    ['a hook', () => ({ onWindowSpan: fail })],
  ];

  test.each(cases)('%s never reaches the generation, and is reported', async (_, makeOptions) => {
    const complain = listenToDiag();
    const { generations } = setUp(makeOptions());
    const decode = ({ scheduler, tokensCommitted }: Generation) => {
      scheduler.completeNext(scheduler.open(0, 0).id);
      tokensCommitted(2);
      scheduler.open(8, 2);
      return 'decoded';
    };
    const error = new Error('decode');
    for (let i = 0; i < 3; i++) {
      expect(await generations.run({ depth: 1 }, decode)).toBe('decoded');
      await expect(generations.run({ depth: 1 }, () => Promise.reject(error))).rejects.toBe(error);
    }
    // Generations and windows each report what they cannot do, once.
    expect(complain.mock.calls.length).toBeGreaterThanOrEqual(1);
    expect(complain.mock.calls.length).toBeLessThanOrEqual(2);
  });

  test('a clock that fails at the end does not hide what the generation came to', async () => {
    const complain = listenToDiag();
    const { tracing, generations } = setUp();
    let isBroken = false;
    const clock = () => (isBroken ? fail() : 0);
    const run = generations.run({ depth: 1, clock }, ({ scheduler }) => {
      scheduler.open(0, 0);
      isBroken = true;
      return 'decoded';
    });
    expect(await run).toBe('decoded');
    expect(tracing.spans(GENERATION)).toHaveLength(1);
    expect(complain).not.toHaveBeenCalled();
  });
});

test('however many generations run at once, each window is in its own', async () => {
  const plans = fc.array(fc.array(fc.nat(3), { maxLength: 12 }), { minLength: 2, maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(plans, async (all) => {
      const { tracing, generations } = setUp();
      const decode = async (plan: number[], which: number) =>
        generations.run({ depth: 2, requestModel: `${which}` }, async ({ scheduler }) => {
          for (const turns of plan) {
            const { id } = scheduler.open(which, which);
            for (let i = 0; i < turns; i++) await (i % 2 ? setImmediate() : null);
            tracing.tracer.startSpan('host', { attributes: { which } }).end();
            scheduler.completeNext(id);
          }
        });
      await Promise.all(all.map(decode));

      const byId = new Map(
        tracing
          .spans(GENERATION)
          .map((span) => [
            span.spanContext().spanId,
            Number(span.attributes[ATTRIBUTES.ATTR_GEN_AI_REQUEST_MODEL]),
          ]),
      );
      const position = ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION;
      for (const [name, mark] of [
        [WINDOW, position],
        ['host', 'which'],
      ] as const) {
        const spans = tracing.spans(name);
        expect(spans).toHaveLength(all.flat().length);
        for (const { attributes, parentSpanContext } of spans) {
          expect(byId.get(parentSpanContext?.spanId ?? '')).toBe(attributes[mark]);
        }
      }
      expect(byId.size).toBe(all.length);
    }),
    { numRuns: 30 },
  );
});

test('without a context manager windows find their generation all the same', async () => {
  context.disable();
  const { tracing, generations } = setUp();
  const decode = async ({ scheduler }: Generation) => {
    await setImmediate();
    scheduler.completeNext(scheduler.open(0, 0).id);
  };
  await Promise.all([1, 2, 3].map(() => generations.run({ depth: 1 }, decode)));
  for (const generation of tracing.spans(GENERATION)) {
    expect(tracing.spans(WINDOW).filter((window) => isParent(generation, window))).toHaveLength(1);
  }
});
