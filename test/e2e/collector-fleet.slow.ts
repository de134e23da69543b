import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS,
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/index.js';
import { Collector } from './collector.js';
import { type HandmadeSpan, sendSpans } from './collector-payloads.js';
import { runExample } from './example.js';
import { Jaeger, type JaegerSpan } from './jaeger.js';
import { findMissing, until } from './programs.js';
import { faultsOf } from './whole-trace.js';

const GENERATIONS = 4;
const KEEP_RECOVERY_EPOCHS = 3;
const KEEP_PERCENT = 25;
const SLOW_MS = 500;
const PLAIN = 100;

/** A trace that a test makes up: what the coordinator's machine says of it, and another one's. */
interface HandmadeTrace {
  readonly coordinator: readonly HandmadeSpan[];
  readonly stage: readonly HandmadeSpan[];
}

/** A generation with one window in one stage; the number tells it from the others. */
function trace(
  number: number,
  options: {
    readonly epochs?: number;
    readonly windowMs?: number;
    readonly failure?: string;
    readonly hasRoot?: false;
  } = {},
): HandmadeTrace {
  const { epochs = 0, failure, hasRoot = true, windowMs = 1 } = options;
  // As random as real ones are: the share is taken by them.
  const traceId = createHash('sha256').update(`${number}`).digest('hex').slice(0, 32);
  const generation: HandmadeSpan = {
    traceId,
    spanId: '1'.repeat(16),
    name: SPAN_LLAMA_STAGE_GENERATION,
    durationMs: 10_000,
    attributes: { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS]: epochs },
  };
  const window: HandmadeSpan = {
    traceId,
    spanId: '2'.repeat(16),
    parentSpanId: generation.spanId,
    name: SPAN_LLAMA_STAGE_VERIFY_WINDOW,
    durationMs: windowMs,
  };
  const stage: HandmadeSpan = {
    traceId,
    spanId: '3'.repeat(16),
    parentSpanId: window.spanId,
    name: SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
    ...(failure !== undefined && { failure }),
  };
  return { coordinator: hasRoot ? [window, generation] : [window], stage: [stage] };
}

const plain = Array.from({ length: PLAIN }, (_, number) => trace(number));
const fewEpochs = trace(1001, { epochs: KEEP_RECOVERY_EPOCHS - 1 });
const kept = {
  'an error in one stage': trace(2001, { failure: '' }),
  'many recovery epochs': trace(2002, { epochs: KEEP_RECOVERY_EPOCHS }),
  'a slow window': trace(2003, { windowMs: SLOW_MS + 100 }),
  'a slow window and no end of its generation': trace(2004, {
    windowMs: SLOW_MS + 100,
    hasRoot: false,
  }),
};

describe.skipIf(findMissing(['otelcol', 'jaeger']))('agents and gateways', () => {
  let jaeger: Jaeger;
  let gateways: Collector[] = [];
  let agents: Collector[] = [];
  let examples: JaegerSpan[][];
  let handmade: Map<string | undefined, JaegerSpan[]>;

  /** What has arrived of these traces, by their ids. */
  async function arrived(service: string): Promise<Map<string | undefined, JaegerSpan[]>> {
    return new Map((await jaeger.traces(service)).map((spans) => [spans[0]?.traceId, spans]));
  }

  beforeAll(async () => {
    jaeger = await Jaeger.start();
    const policies = {
      TRACES_ADDRESS: jaeger.grpcAddress,
      TRACES_INSECURE: 'true',
      DECISION_WAIT: '20s',
      DECISION_WAIT_AFTER_ROOT: '3s',
      KEEP_RECOVERY_EPOCHS: `${KEEP_RECOVERY_EPOCHS}`,
      KEEP_SLOW_WINDOW: `${SLOW_MS}ms`,
      KEEP_PERCENT: `${KEEP_PERCENT}`,
    };
    for (let i = 0; i < 2; i++) {
      gateways = [...gateways, await Collector.start(['gateway.yaml'], policies)];
    }
    // No name here resolves to both.
    const hostnames = gateways.map(({ grpcAddress }) => grpcAddress);
    const resolver = { dns: null, static: { hostnames } };
    const override = { exporters: { 'load_balancing/traces': { resolver } } };
    for (let i = 0; i < 2; i++) {
      agents = [
        ...agents,
        await Collector.start(['agent.yaml', 'guards.yaml', override], {
          GATEWAY_INSECURE: 'true',
        }),
      ];
    }

    const [first, second] = agents.map(({ endpoint }) => endpoint) as [string, string];
    const all = [...plain, fewEpochs, ...Object.values(kept)];
    const coordinator = { 'service.name': 'made-up' };
    await sendSpans(
      first,
      coordinator,
      all.flatMap((each) => each.coordinator),
    );
    const stage = { 'service.name': 'made-up-stage' };
    await sendSpans(
      second,
      stage,
      all.flatMap((each) => each.stage),
    );
    await runExample(['--depth', '4', '--generations', `${GENERATIONS}`], {
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${first}/v1/traces`,
      OTEL_BSP_SCHEDULE_DELAY: '500',
    });
    // The last decision of all is on the trace without its root.
    const rootless = kept['a slow window and no end of its generation'].stage[0]?.traceId;
    handmade = await until('the trace that is decided last', async () => {
      const found = await arrived('made-up-stage');
      return found.has(rootless) ? found : undefined;
    });
    examples = await until('the traces of the example', async () => {
      const found = await jaeger.traces('llama-stage-coordinator');
      return found.length === 2 * GENERATIONS ? found : undefined;
    });
  });
  afterAll(async () => {
    for (const server of [...agents, ...gateways, jaeger]) await server?.stop();
  });

  test('the traces of the example arrive whole', () => {
    expect(examples.flatMap(faultsOf)).toEqual([]);
  });

  test('both gateways take part', async () => {
    for (const gateway of gateways) {
      expect(await gateway.counter('otelcol_receiver_accepted_spans')).toBeGreaterThan(0);
    }
  });

  test.each(Object.entries(kept))(
    '%s keeps a trace, with the spans of every machine',
    (_, { coordinator, stage }) => {
      const spans = handmade.get(stage[0]?.traceId) ?? [];
      expect(spans.map(({ spanId }) => spanId).sort()).toEqual(
        [...coordinator, ...stage].map(({ spanId }) => spanId).sort(),
      );
    },
  );

  test('of the rest a share is kept, each trace of it whole', () => {
    const ids = [...plain, fewEpochs].map(({ stage }) => stage[0]?.traceId);
    const found = ids.flatMap((id) => {
      const spans = handmade.get(id);
      return spans === undefined ? [] : [spans];
    });
    expect(found.length).toBeGreaterThan(PLAIN * (KEEP_PERCENT / 100) * 0.5);
    expect(found.length).toBeLessThan(PLAIN * (KEEP_PERCENT / 100) * 1.5);
    expect(found.filter((spans) => spans.length !== 3)).toEqual([]);
  });

  test('a span that comes after the decision follows it', async () => {
    const [{ traceId } = { traceId: '' }] = kept['an error in one stage'].stage;
    const late = { traceId, spanId: '4'.repeat(16), name: 'late' };
    await sendSpans(agents[1]?.endpoint ?? '', { 'service.name': 'made-up-stage' }, [late]);
    const found = await until('the late span', async () => {
      const spans = (await arrived('made-up-stage')).get(traceId) ?? [];
      return spans.some(({ name }) => name === 'late') ? spans : undefined;
    });
    expect(found).toHaveLength(4);
  });
});
