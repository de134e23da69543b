import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Report } from '../../examples/pipeline/report.js';
import * as semconv from '../../semconv/index.js';
import { Collector, validate } from './collector.js';
import { sendMetrics, sendSpans } from './collector-payloads.js';
import { runExample } from './example.js';
import { Jaeger, type JaegerSpan } from './jaeger.js';
import { findMissing, findProgram, until } from './programs.js';
import { Prometheus } from './prometheus.js';
import { faultsOf } from './whole-trace.js';

const GENERATIONS = 2;
const SECRET = 'the prompt';
const folder = mkdtempSync(join(tmpdir(), 'llama-stage-otel-e2e-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.skipIf(findMissing(['otelcol', 'jaeger']))('configurations', () => {
  test.each([
    [['one-machine.yaml', 'guards.yaml']],
    [['agent.yaml', 'guards.yaml']],
    [['gateway.yaml']],
  ])('the Collector finds no fault in %s', async (configs) => {
    await expect(validate(configs)).resolves.toBeUndefined();
  });

  test('Jaeger finds no fault in its own', async () => {
    const config = join(import.meta.dirname, '../../operations/jaeger/jaeger.yaml');
    const run = promisify(execFile)(findProgram('jaeger') ?? '', ['validate', '--config', config]);
    await expect(run).resolves.toBeDefined();
  });
});

describe.skipIf(findMissing(['otelcol', 'jaeger', 'prometheus']))(
  'the Collector of one machine',
  () => {
    let jaeger: Jaeger;
    let prometheus: Prometheus;
    let collector: Collector;
    let report: Report;
    let traces: JaegerSpan[][];
    let handmade: JaegerSpan[];

    beforeAll(async () => {
      jaeger = await Jaeger.start();
      prometheus = await Prometheus.start(folder, {});
      collector = await Collector.start(['one-machine.yaml', 'guards.yaml'], {
        TRACES_ADDRESS: jaeger.grpcAddress,
        METRICS_ENDPOINT: `${prometheus.url}/api/v1/otlp`,
      });
      const resource = { 'service.name': 'made-up', 'host.name': SECRET };
      const span = { traceId: '1'.repeat(32), name: 'made up' };
      const attributes = {
        'gen_ai.input.messages': SECRET,
        [semconv.ATTR_GEN_AI_REQUEST_MODEL]: 'x'.repeat(1000),
      };
      // Apart, as what guards one of them must not hang on what another one has.
      await sendSpans(collector.endpoint, resource, [{ ...span, spanId: '1'.repeat(16) }]);
      await sendSpans(collector.endpoint, resource, [
        { ...span, spanId: '2'.repeat(16), attributes },
      ]);
      await sendSpans(collector.endpoint, resource, [
        { ...span, spanId: '3'.repeat(16), event: { 'exception.message': SECRET } },
      ]);
      await sendSpans(collector.endpoint, resource, [
        { ...span, spanId: '4'.repeat(16), failure: SECRET },
      ]);
      const opened = semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
      await sendMetrics(collector.endpoint, { ...resource, 'service.instance.id': 'a' }, [
        {
          name: opened,
          points: [
            { value: 3, attributes: { session: SECRET } },
            { value: 4, attributes: { session: `another of ${SECRET}` } },
          ],
        },
        { name: 'http.server.requests', points: [{ value: 1 }] },
        {
          name: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE,
          unit: 's',
          kind: 'gauge',
          points: [
            { value: 30, attributes: { session: SECRET } },
            { value: 40, attributes: { session: `another of ${SECRET}` } },
          ],
        },
        {
          name: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
          unit: 's',
          kind: 'exponentialHistogram',
          points: [
            {
              attributes: { session: SECRET },
              // In (2, 4] and in (16, 32].
              value: { scale: 0, sum: 23, offset: 1, counts: [1, 0, 0, 1] },
            },
            {
              attributes: { session: `another of ${SECRET}` },
              // Nothing at all, and in (0.0287, 0.03125].
              value: { scale: 3, sum: 0.06, zeros: 1, offset: -41, counts: [2] },
            },
          ],
        },
        {
          name: semconv.METRIC_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
          kind: 'exponentialHistogram',
          // Up to 4, and just above.
          points: [{ value: { scale: 5, sum: 13, zeros: 2, offset: 63, counts: [3, 1] } }],
        },
      ]);
      report = await runExample(['--depth', '4', '--generations', `${GENERATIONS}`], {
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
        OTEL_RESOURCE_ATTRIBUTES: `host.name=${encodeURIComponent(SECRET)}`,
      });
      traces = await until('all traces, whole', async () => {
        const found = await jaeger.traces('llama-stage-coordinator');
        const isAll = found.length === 2 * GENERATIONS && found.flatMap(faultsOf).length === 0;
        return isAll ? found : undefined;
      });
      handmade = (await jaeger.traces('made-up')).flat();
    });
    afterAll(async () => {
      await collector?.stop();
      await prometheus?.stop();
      await jaeger?.stop();
    });

    test('passes every trace on, whole', () => {
      expect(traces).toHaveLength(2 * GENERATIONS);
      expect(traces.flatMap(faultsOf)).toEqual([]);
    });

    test('passes every metric on, as it was counted', async () => {
      const promql =
        'sum by (pipeline_run) (llama_stage_verify_window_opened_total{pipeline_run!=""})';
      const byRun = await until('the counts of both runs', async () => {
        const samples = await prometheus.query(promql);
        return samples.length === 2 ? samples : undefined;
      });
      expect(
        Object.fromEntries(byRun.map(({ metric, value }) => [metric.pipeline_run, value])),
      ).toEqual({ control: report.control.q3.opened, pipelined: report.pipelined.q3.opened });
    });

    test('lets nothing out that is not in the conventions', async () => {
      const known = new Set<unknown>(Object.values(semconv));
      const spans = [...traces.flat(), ...handmade];
      const keys = spans.flatMap(({ attributes, events }) =>
        [attributes, ...events.map((event) => event.attributes)].flatMap(Object.keys),
      );
      expect(keys.filter((key) => !known.has(key))).toEqual([]);
      expect(handmade).toHaveLength(4);
      const telling = spans.filter((span) => JSON.stringify(span).includes(SECRET));
      expect(telling.map(({ name }) => name)).toEqual([]);
      const series = await prometheus.query('{__name__=~".+"}');
      expect(series.length).toBeGreaterThan(100);
      const told = series.filter(({ metric }) => JSON.stringify(metric).includes(SECRET));
      expect(told.map(({ metric }) => metric.__name__)).toEqual([]);
    });

    test('keeps values short', () => {
      const models = handmade.map(
        ({ attributes }) => attributes[semconv.ATTR_GEN_AI_REQUEST_MODEL],
      );
      expect(models.filter(Boolean)).toEqual(['x'.repeat(128)]);
    });

    test('adds up what only an unknown attribute told apart', async () => {
      const samples = await prometheus.query(
        'llama_stage_verify_window_opened_total{job="made-up"}',
      );
      expect(samples.map(({ value }) => value)).toEqual([7]);
    });

    test('keeps the greatest of ages that only an unknown attribute told apart', async () => {
      const samples = await prometheus.query(
        'llama_stage_verify_window_oldest_age_seconds{job="made-up"}',
      );
      expect(samples.map(({ value }) => value)).toEqual([40]);
    });

    test('adds up exponential histograms of different scales, in the buckets of the conventions', async () => {
      const [duration, length] = await Promise.all(
        ['duration_seconds', 'accepted_length'].map((name) => histogram(name)),
      );
      expect(duration).toMatchObject({
        ...{ '0.0005': 1, '0.025': 1, '0.05': 3, '2.5': 3, '5': 4, '10': 4, '+Inf': 5 },
        count: 5,
        sum: expect.closeTo(23.06),
      });
      expect(Object.keys(duration ?? {})).toHaveLength(14 + 3);
      expect(length).toMatchObject({
        '0': 2,
        '3': 2,
        '4': 5,
        '5': 6,
        '+Inf': 6,
        count: 6,
        sum: 13,
      });
    });

    async function histogram(name: string): Promise<Record<string, number>> {
      const of = `llama_stage_verify_window_${name}`;
      const samples = await prometheus.query(
        `{__name__=~"${of}_(bucket|sum|count)", job="made-up"}`,
      );
      return Object.fromEntries(
        samples.map(({ metric, value }) => [
          metric.le ?? metric.__name__?.slice(of.length + 1),
          value,
        ]),
      );
    }

    test('drops metrics that it does not know', async () => {
      const names = await prometheus.query('count by (__name__) ({job="made-up"})');
      expect(names.length).toBeGreaterThan(3);
      expect(
        names.filter(({ metric }) => !metric.__name__?.startsWith('llama_stage_verify_window_')),
      ).toEqual([]);
    });
  },
);
