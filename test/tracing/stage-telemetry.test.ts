import { setImmediate } from 'node:timers/promises';
import {
  context,
  metrics as metricsApi,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { type IAttributesProcessor, MeterProvider } from '@opentelemetry/sdk-metrics';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  ParentBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import { describe, expect, test, vi } from 'vitest';
import * as ATTRIBUTES from '../../semconv/attributes.js';
import {
  METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
  METRIC_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
  METRIC_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
} from '../../semconv/metrics.js';
import {
  SPAN_LLAMA_STAGE_STAGE_COMPUTE,
  SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
  SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import { SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION } from '../../src/guard.js';
import {
  decodeTraceCarrier,
  encodeTraceCarrier,
  injectTraceContext,
  StageTelemetry,
  type StageTelemetryOptions,
  type StageWindow,
  VerifyWindowScheduler,
  VerifyWindowTracer,
  windowContext,
} from '../../src/index.js';
import { ManualReader, providerWith } from '../metrics/collected.js';
import { hostileValues } from './hostile-values.js';
import { brokenProcessor, isParent, listenToDiag, nanoseconds, Tracing, useApi } from './sdk.js';

const STAGE = SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW;
const COMPUTE = SPAN_LLAMA_STAGE_STAGE_COMPUTE;
const INDEX = ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_INDEX;
const ERROR_TYPE = ATTRIBUTES.ATTR_ERROR_TYPE;

const PHASES = [
  ['compute', COMPUTE, METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION],
  [
    'forwardWrite',
    SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
    METRIC_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
  ],
  [
    'downstreamWait',
    SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
    METRIC_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
  ],
] as const;

useApi();

/** A stage in a process of its own, as far as its SDK goes. */
function setUp(options: Partial<StageTelemetryOptions> = {}, tracing = new Tracing()) {
  const reader = new ManualReader();
  const stage = new StageTelemetry({
    index: 1,
    tracerProvider: tracing.provider,
    meterProvider: providerWith(reader),
    ...options,
  });
  return { tracing, reader, stage };
}

/** A coordinator's window in flight: what its message carries, and how it ends. */
function sendWindow(tracing = new Tracing()) {
  const scheduler = new VerifyWindowScheduler({ depth: 1 });
  const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
  return tracing.tracer.startActiveSpan('generation', () => {
    tracer.observe(scheduler);
    const window = scheduler.open(0, 0);
    const carrier = injectTraceContext(windowContext(scheduler, window));
    const end = () => {
      scheduler.completeNext(window.id);
      return tracing.span(SPAN_LLAMA_STAGE_VERIFY_WINDOW);
    };
    return { carrier: decodeTraceCarrier(Buffer.from(encodeTraceCarrier(carrier))), end };
  });
}

describe('a window', () => {
  test('is a server span below the coordinator’s, with its phases below it', async () => {
    const { tracing, stage } = setUp({ id: 'stage-1', layerStart: 16, layerEnd: 32 });
    const { carrier, end } = sendWindow();
    await stage.window(carrier, async (window) => {
      window.compute(() => 1);
      await window.forwardWrite(async () => setImmediate());
      await window.downstreamWait(async () => setImmediate());
    });
    const span = tracing.span(STAGE);
    expect(isParent(end(), span)).toBe(true);
    expect(span).toMatchObject({ kind: SpanKind.SERVER, status: { code: SpanStatusCode.UNSET } });
    expect(span.attributes).toEqual({
      [INDEX]: 1,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_ID]: 'stage-1',
      [ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_LAYER_START]: 16,
      [ATTRIBUTES.ATTR_LLAMA_STAGE_STAGE_LAYER_END]: 32,
    });
    for (const [, name] of PHASES) {
      const phase = tracing.span(name);
      expect(phase).toMatchObject({ kind: SpanKind.INTERNAL, attributes: { [INDEX]: 1 } });
      expect(isParent(span, phase)).toBe(true);
    }
    expect(span.instrumentationScope.name).toBe('llama-stage-otel');
  });

  test('begins before its phases and ends after them, and one phase ends before the next', async () => {
    const { tracing, stage } = setUp();
    const { carrier } = sendWindow();
    for (let i = 0; i < 20; i++) {
      await stage.window(carrier, async (window) => {
        window.compute(() => i);
        await window.forwardWrite(async () => i);
        window.downstreamWait(() => i);
      });
      const times = [
        tracing.spans(STAGE)[i]?.startTime,
        ...PHASES.flatMap(([, name]) => {
          const phase = tracing.spans(name)[i];
          return [phase?.startTime, phase?.endTime];
        }),
        tracing.spans(STAGE)[i]?.endTime,
      ].map((time) => nanoseconds(time ?? [0, 0]));
      expect(times).toEqual(times.toSorted((a, b) => (a < b ? -1 : Number(a > b))));
    }
  });

  test('of stage 0 is one without layers and an id, if it has none', () => {
    const { tracing, stage } = setUp({ index: 0 });
    stage.window(sendWindow().carrier, () => {});
    expect(tracing.span(STAGE).attributes).toEqual({ [INDEX]: 0 });
  });

  test('carries on what it came with, so that the next stage has the same parent', () => {
    const [one, two] = [setUp({ index: 1 }), setUp({ index: 2 })];
    const { carrier, end } = sendWindow();
    one.stage.window(carrier, (first) => {
      expect(first.carrier).toEqual(carrier);
      two.stage.window(JSON.parse(JSON.stringify(first.carrier)), () => {});
    });
    const parent = end();
    expect(isParent(parent, one.tracing.span(STAGE))).toBe(true);
    expect(isParent(parent, two.tracing.span(STAGE))).toBe(true);
  });

  test("carries on the propagator's fields that it came with, and nothing else", () => {
    const { stage } = setUp();
    const sent = { Traceparent: 'x', custom: 'y', tokens: [1, 2], deep: { a: 1 } };
    expect(stage.window(sent, ({ carrier }) => carrier)).toEqual({ traceparent: 'x' });
    for (const { make } of hostileValues) {
      expect(stage.window(make(), ({ carrier }) => carrier)).toEqual({});
    }
  });

  test('may be taken apart', () => {
    const { tracing, stage } = setUp();
    const { carrier } = sendWindow();
    stage.window(carrier, ({ compute }) => compute(() => {}));
    expect(tracing.spans(COMPUTE)).toHaveLength(1);
  });
});

describe('what the host traces itself', () => {
  test('is below the window, and within a phase below that phase', async () => {
    const { tracing, stage } = setUp();
    const { carrier } = sendWindow();
    const work = async (name: string) => {
      await setImmediate();
      tracing.tracer.startSpan(name).end();
    };
    await stage.window(carrier, async (window) => {
      await work('in the window');
      await Promise.all([
        window.compute(() => work('in compute')),
        window.forwardWrite(() => work('in forwardWrite')),
      ]);
      await work('after the phases');
    });
    const parents = [
      ['in the window', STAGE],
      ['in compute', COMPUTE],
      ['in forwardWrite', SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE],
      ['after the phases', STAGE],
    ] as const;
    for (const [child, parent] of parents) {
      expect(isParent(tracing.span(parent), tracing.span(child)), child).toBe(true);
    }
  });

  test('keeps its own context, in the window as in its phases', () => {
    const { stage } = setUp();
    const { carrier } = sendWindow();
    const [outer, inner] = [Symbol('outer'), Symbol('inner')];
    context.with(context.active().setValue(outer, 1), () => {
      stage.window(carrier, (window) => {
        context.with(context.active().setValue(inner, 2), () => {
          window.compute(() => {
            expect(context.active().getValue(outer)).toBe(1);
            expect(context.active().getValue(inner)).toBe(2);
          });
        });
      });
    });
  });

  test('is not sampled where the window is not', () => {
    const { stage, tracing } = setUp();
    const { carrier } = sendWindow(new Tracing({ sampler: new AlwaysOffSampler() }));
    expect(carrier.traceparent).toMatch(/-00$/);
    stage.window(carrier, (window) => {
      tracing.tracer.startSpan('of the host').end();
      window.compute(() => tracing.tracer.startSpan('of the host').end());
    });
    expect(tracing.spans()).toEqual([]);
  });

  test('is left alone where there is no trace', () => {
    const { stage, tracing } = setUp();
    tracing.tracer.startActiveSpan('of the transport', (span) => {
      stage.window(undefined, (window) => {
        window.compute(() => tracing.tracer.startSpan('of the host').end());
      });
      span.end();
    });
    expect(isParent(tracing.span('of the transport'), tracing.span('of the host'))).toBe(true);
    expect(tracing.spans(STAGE)).toEqual([]);
  });
});

describe('phases within phases', () => {
  test('are all below the window, and each lasts as long as its own work', async () => {
    const { tracing, reader, stage } = setUp();
    const { carrier } = sendWindow();
    await stage.window(carrier, async (window) => {
      await window.downstreamWait(async () => {
        await window.forwardWrite(async () => {
          await setImmediate();
          window.compute(() => {});
        });
        await setImmediate();
      });
    });
    const names = tracing.spans().map(({ name }) => name);
    expect(names).toEqual([...PHASES.map(([, name]) => name), STAGE]);
    for (const [, name, metric] of PHASES) {
      expect(isParent(tracing.span(STAGE), tracing.span(name))).toBe(true);
      expect((await reader.read()).count(metric)).toBe(1);
    }
  });

  test('of many windows at once are each in their own', async () => {
    const { tracing, stage } = setUp();
    const windows = Array.from({ length: 30 }, () => sendWindow());
    await Promise.all(
      windows.map(({ carrier }, which) =>
        stage.window(carrier, async (window) => {
          for (let i = 0; i < which % 5; i++) await setImmediate();
          await window.compute(async () => {
            await setImmediate();
            tracing.tracer.startSpan('host').end();
          });
        }),
      ),
    );
    const spans = windows.map(({ end }) => {
      const parent = end();
      const [server] = tracing.spans(STAGE).filter((span) => isParent(parent, span));
      const [compute] = tracing.spans(COMPUTE).filter((span) => server && isParent(server, span));
      return tracing.spans('host').filter((span) => compute && isParent(compute, span)).length;
    });
    expect(spans).toEqual(windows.map(() => 1));
  });

  test('that go on after the window has ended are still its own', async () => {
    const { tracing, stage } = setUp();
    const { carrier } = sendWindow();
    const kept = stage.window(carrier, (window) => window);
    kept.forwardWrite(() => {});
    expect(isParent(tracing.span(STAGE), tracing.spans()[1] ?? tracing.span(STAGE))).toBe(true);
    expect(tracing.spans()).toHaveLength(2);
  });
});

describe('the histograms', () => {
  test.each(PHASES)(
    'hold the seconds of %s, by the index of the stage',
    async (phase, _, metric) => {
      const { reader, stage } = setUp({ index: 3, id: 'stage-3', layerStart: 1, layerEnd: 2 });
      let passedMs = 0;
      vi.spyOn(performance, 'now').mockImplementation(() => passedMs);
      stage.window(sendWindow().carrier, (window) => {
        window[phase](() => {
          passedMs += 250;
        });
      });
      await stage.window(undefined, async (window) => {
        await window[phase](async () => {
          await setImmediate();
          passedMs += 500;
        });
      });
      const collected = await reader.read();
      const points = collected.histogram(metric);
      expect(points.map(({ attributes }) => attributes)).toEqual([{ [INDEX]: 3 }]);
      expect(points[0]?.value).toMatchObject({ count: 2, sum: 0.75, min: 0.25, max: 0.5 });
      expect(collected.metric(metric)?.descriptor.unit).toBe('s');
      expect(collected.names).toEqual([metric]);
    },
  );

  test('hold what was not sampled, and what failed', async () => {
    const { tracing, reader, stage } = setUp();
    const unsampled = sendWindow(new Tracing({ sampler: new AlwaysOffSampler() }));
    stage.window(unsampled.carrier, (window) => window.compute(() => {}));
    const fail = () => {
      throw new Error('broken layer');
    };
    expect(() => stage.window(unsampled.carrier, (window) => window.compute(fail))).toThrow();
    expect((await reader.read()).count(METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION)).toBe(2);
    expect(tracing.spans()).toEqual([]);
  });

  test('are recorded in the context of the phase, where exemplars are taken from', () => {
    const seen: (string | undefined)[] = [];
    const watch: IAttributesProcessor = {
      process: (attributes, from) => {
        seen.push(from && trace.getSpanContext(from)?.spanId);
        return attributes;
      },
    };
    const views = [{ instrumentName: 'llama_stage.stage.*', attributesProcessors: [watch] }];
    const meterProvider = new MeterProvider({ readers: [new ManualReader()], views });
    const { tracing, stage } = setUp({ meterProvider: meterProvider });
    stage.window(sendWindow().carrier, (window) => window.compute(() => {}));
    expect(seen).toEqual([tracing.span(COMPUTE).spanContext().spanId]);
  });

  test('and the spans go to global providers that are registered late', async () => {
    const stage = new StageTelemetry({ index: 1 });
    const { carrier } = sendWindow();
    const work = () => stage.window(carrier, (window) => window.compute(() => 'done'));
    expect(work()).toBe('done');
    const tracing = new Tracing();
    const reader = new ManualReader();
    trace.setGlobalTracerProvider(tracing.provider);
    metricsApi.setGlobalMeterProvider(providerWith(reader));
    expect(work()).toBe('done');
    expect(tracing.spans()).toHaveLength(2);
    expect((await reader.read()).count(METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION)).toBe(1);
  });
});

describe('a trace', () => {
  test.each([
    ['is missing', undefined],
    ['is empty', {}],
    ['is broken', { traceparent: 'broken' }],
  ])('that %s costs the spans, and the work is done all the same', (_, carrier) => {
    const { tracing, stage } = setUp();
    expect(stage.window(carrier, (window) => window.compute(() => 42))).toBe(42);
    expect(tracing.spans()).toEqual([]);
  });

  test('that is not sampled costs one decision of the sampler, and none for the phases', () => {
    const sampler = new ParentBasedSampler({ root: new AlwaysOnSampler() });
    const shouldSample = vi.spyOn(sampler, 'shouldSample');
    const { stage } = setUp({}, new Tracing({ sampler }));
    const { carrier } = sendWindow(new Tracing({ sampler: new AlwaysOffSampler() }));
    stage.window(carrier, (window) => {
      window.compute(() => {});
      window.forwardWrite(() => {});
    });
    expect(shouldSample).toHaveBeenCalledTimes(1);
  });

  test('is continued as the sampler of the stage decides', () => {
    const sampled = sendWindow();
    const unsampled = sendWindow(new Tracing({ sampler: new AlwaysOffSampler() }));
    const stubborn = new ParentBasedSampler({
      root: new AlwaysOffSampler(),
      remoteParentSampled: new AlwaysOffSampler(),
      remoteParentNotSampled: new AlwaysOnSampler(),
    });
    const { tracing, stage } = setUp({}, new Tracing({ sampler: stubborn }));
    for (const { carrier } of [sampled, unsampled]) {
      stage.window(carrier, (window) => {
        window.compute(() => tracing.tracer.startSpan('host').end());
      });
    }
    const { traceId } = tracing.span(STAGE).spanContext();
    expect(unsampled.carrier.traceparent).toContain(traceId);
    expect(tracing.spans().map((span) => span.spanContext().traceId)).toEqual(
      Array(3).fill(traceId),
    );
  });
});

describe('work', () => {
  const { carrier } = { carrier: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` } };

  /** As a phase, and as the whole of a window. */
  const places: [string, string, (stage: StageTelemetry, act: () => unknown) => unknown][] = [
    ['a window', STAGE, (stage, act) => stage.window(carrier, act)],
    ['a phase', COMPUTE, (stage, act) => stage.window(carrier, (window) => window.compute(act))],
  ];

  describe.each(places)('of %s', (_, name, run) => {
    test.each([1, 'text', null, undefined, () => {}, Object.fromEntries([['then', 1]])])(
      'gives back what it returns: %s',
      (value) => {
        const { stage } = setUp();
        expect(run(stage, () => value)).toBe(value);
      },
    );

    test('gives back what it resolves with', async () => {
      const { stage, tracing } = setUp();
      const value = {};
      const result = run(stage, async () => {
        await setImmediate();
        return value;
      });
      expect(tracing.spans(name)).toEqual([]);
      expect(await result).toBe(value);
      expect(tracing.span(name).status).toEqual({ code: SpanStatusCode.UNSET });
    });

    test('may be any thenable, and lasts until it is settled', async () => {
      const { stage, tracing } = setUp();
      let settle = (_: unknown) => {};
      const thenable = {
        // biome-ignore lint/suspicious/noThenProperty: a thenable is what this is about.
        then: (resolved: (value: unknown) => void) => {
          settle = resolved;
        },
      };
      const result = run(stage, () => thenable);
      expect(result).toBe(thenable);
      const awaited = Promise.resolve(result);
      await setImmediate();
      expect(tracing.spans(name)).toEqual([]);
      settle('settled');
      expect(await awaited).toBe('settled');
      expect(tracing.spans(name)).toHaveLength(1);
    });

    describe.each([
      { name: 'an error', make: (): unknown => new RangeError('secret'), errorType: 'RangeError' },
      { name: 'text', make: (): unknown => 'secret', errorType: '_OTHER' },
      ...hostileValues,
    ])('that fails with $name', ({ make, errorType }) => {
      test.each<[string, (error: unknown) => unknown]>([
        [
          'throws',
          (error) => {
            throw error;
          },
        ],
        [
          'rejects',
          async (error) => {
            await setImmediate();
            throw error;
          },
        ],
      ])('%s exactly that, and the span tells its kind alone', async (_how, fail) => {
        const complain = listenToDiag();
        const { stage, tracing } = setUp();
        const error = make();
        const attempt = async () => run(stage, () => fail(error));
        const outcome = await attempt().then(
          () => 'it returned',
          (thrown: unknown) => ({ thrown }),
        );
        expect((outcome as { thrown: unknown }).thrown === error).toBe(true);
        const span = tracing.span(name);
        expect(span.status).toEqual({ code: SpanStatusCode.ERROR });
        expect(span.attributes).toEqual({ [INDEX]: 1, [ERROR_TYPE]: errorType });
        expect(span.events).toEqual([]);
        expect(complain).not.toHaveBeenCalled();
      });
    });

    test('that the host waits for fails once', async () => {
      const { stage } = setUp();
      const unhandled = vi.fn();
      const others = process.listeners('unhandledRejection');
      process.removeAllListeners('unhandledRejection').on('unhandledRejection', unhandled);
      const promise = Promise.reject(new Error('handled'));
      const result = run(stage, () => promise);
      expect(result).toBe(promise);
      await promise.catch(() => {});
      await setImmediate();
      process.removeAllListeners('unhandledRejection');
      for (const other of others) process.on('unhandledRejection', other);
      expect(unhandled).not.toHaveBeenCalled();
    });
  });

  test('that fails in a phase and is caught leaves the window without an error', () => {
    const { stage, tracing } = setUp();
    stage.window(carrier, (window) => {
      expect(() =>
        window.forwardWrite(() => {
          throw new Error('broken pipe');
        }),
      ).toThrow('broken pipe');
      window.forwardWrite(() => {});
    });
    expect(tracing.span(STAGE).status).toEqual({ code: SpanStatusCode.UNSET });
    const writes = tracing.spans(SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE);
    expect(writes.map(({ status }) => status.code)).toEqual([
      SpanStatusCode.ERROR,
      SpanStatusCode.UNSET,
    ]);
  });

  describe('with a host that is broken', () => {
    const fail = () => {
      throw new Error('broken');
    };
    const cases: [string, () => Partial<StageTelemetryOptions>][] = [
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
          return {
            tracerProvider: new Tracing({ processors: [brokenProcessor('onEnd')] }).provider,
          };
        },
      ],
      [
        'a tracer provider',
        () => {
          return { tracerProvider: Object.assign(new Tracing().provider, { getTracer: fail }) };
        },
      ],
      [
        'a meter',
        () => {
          const meterProvider = providerWith(new ManualReader());
          const meter = meterProvider.getMeter(SCOPE_NAME, SCOPE_VERSION, {
            schemaUrl: SCHEMA_URL,
          });
          Object.assign(meter, { createHistogram: fail });
          return { meterProvider };
        },
      ],
    ];

    test.each(cases)(
      'in %s is done all the same, and that is reported once',
      async (_, options) => {
        const complain = listenToDiag();
        const { stage } = setUp(options());
        const error = new Error('of the work');
        const phases = async (window: StageWindow) => {
          window.compute(() => 1);
          await window.forwardWrite(async () => 2);
          await expect(window.downstreamWait(() => Promise.reject(error))).rejects.toBe(error);
          return 'done';
        };
        expect(await stage.window(carrier, phases)).toBe('done');
        expect(() =>
          stage.window(carrier, () => {
            throw error;
          }),
        ).toThrow(error);
        expect(complain).toHaveBeenCalledTimes(1);
      },
    );
  });
});

describe('a stage', () => {
  test.each([
    [{ index: -1 }, 'index must be a non-negative safe integer, got -1'],
    [{ index: 0.5 }, 'index must be a non-negative safe integer, got 0.5'],
    [{ index: Number.NaN }, 'index must be a non-negative safe integer, got NaN'],
    [{ index: '1' }, 'index must be a non-negative safe integer, got a value of type string'],
    [{}, 'index must be a non-negative safe integer, got nothing'],
    [undefined, 'index must be a non-negative safe integer, got nothing'],
    [{ index: 0, layerStart: -1 }, 'layerStart must be a non-negative safe integer, got -1'],
    [{ index: 0, layerEnd: 1.5 }, 'layerEnd must be a non-negative safe integer, got 1.5'],
    [{ index: 0, layerStart: 8, layerEnd: 4 }, 'layerEnd must be at least layerStart, 8, got 4'],
    [{ index: 0, id: 7 }, 'id must be a string, got 7'],
  ])('with %j is refused', (options, message) => {
    const make = () => new StageTelemetry(options as StageTelemetryOptions);
    expect(make).toThrow(expect.objectContaining({ code: 'invalid_argument', message }));
  });

  test('may own no layer', () => {
    expect(() => new StageTelemetry({ index: 0, layerStart: 4, layerEnd: 4 })).not.toThrow();
  });
});
