import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { ruleExpressions } from '../../operations/generator/rules/rule-expressions.js';
import { findMissing, until } from './programs.js';
import { Prometheus } from './prometheus.js';
import { type Trouble, TroubledPipeline } from './troubled-pipeline.js';

/** Each pipeline with what is wrong with it, and the alerts that must fire for it, and no others. */
const PIPELINES: Readonly<Record<string, readonly [Trouble, readonly string[]]>> = {
  // The first one, as problems of the telemetry are those of the process from then on.
  overflow: [{ overflows: true }, ['LlamaStageTelemetryProblems warning']],
  healthy: [{}, []],
  stalled: [
    { loses: 'all' },
    ['LlamaStagePipelineStalled critical', 'LlamaStageWindowStuck critical'],
  ],
  stuck: [{ loses: 'one' }, ['LlamaStageWindowStuck critical']],
  idle: [{ depth: 1, pauseMs: 90 }, ['LlamaStagePipelineIdle warning']],
  stale: [{ depth: 8, accepted: 2 }, ['LlamaStageStaleWork warning']],
  late: [{ depth: 2, accepted: 2, discards: true }, []],
  rejected: [{ depth: 1, accepted: 0 }, ['LlamaStageAcceptanceCollapsed warning']],
  dry: [{ refillTokens: 0, supplied: 1 }, ['LlamaStageRefillDry info']],
  'beyond-depth': [{ opensBeyondDepth: true }, ['LlamaStageDepthExceeded warning']],
  mixed: [{ mixesReplies: true }, ['LlamaStageProtocolErrors critical']],
  uneven: [{ stageMs: [10, 40] }, ['LlamaStageStageSlow warning']],
  reverse: [{ reverseReturn: true }, ['LlamaStageReverseFallback info']],
  different: [{ outputDiffers: true }, ['LlamaStageOutputDifferent critical']],
  failing: [
    { failsEachSecond: true },
    ['LlamaStageGenerationsFail critical', 'LlamaStageGenerationsFail warning'],
  ],
  'late-first-tokens': [
    { prefillMs: 400, depth: 2 },
    [
      'LlamaStageFirstTokenLate critical',
      'LlamaStageFirstTokenLate warning',
      'LlamaStagePipelineIdle warning',
    ],
  ],
  'late-tokens': [
    { stageMs: [400, 400], depth: 1 },
    [
      'LlamaStageFirstTokenLate critical',
      'LlamaStageFirstTokenLate warning',
      'LlamaStageTokensLate critical',
      'LlamaStageTokensLate warning',
    ],
  ],
  vanished: [{}, ['LlamaStageWorkerVanished warning']],
};

/** A minute of the rules is a second, and an hour a minute: all fire within two. */
const FLAGS = ['--minute-seconds', '1', '--first-token-seconds', '0.25'];

/** How long the worker that vanishes is there: its absence has to last as the alert waits. */
const PRESENT_MS = 30_000;

describe.skipIf(findMissing(['prometheus']))(
  'pipelines in trouble, and the real Prometheus with rules of shorter waits',
  () => {
    let folder: string;
    let prometheus: Prometheus;
    let pipelines: Map<string, TroubledPipeline>;
    const fired = new Map<string, Set<string>>();

    beforeAll(async () => {
      folder = mkdtempSync(join(tmpdir(), 'llama-stage-otel-e2e-'));
      await promisify(execFile)('npm', ['run', 'operations', '--', '--out', folder, ...FLAGS]);
      const config = parse(readFileSync(join(folder, 'prometheus/prometheus.yaml'), 'utf8'));
      prometheus = await Prometheus.start(
        join(folder, 'prometheus'),
        { ...config, global: { evaluation_interval: '1s' } },
        // As long before a series is gone that is pushed no more: five minutes of the rules.
        ['--query.lookback-delta=5s'],
      );
      pipelines = new Map();
      for (const [name, [trouble]] of Object.entries(PIPELINES)) {
        pipelines.set(name, new TroubledPipeline(prometheus.metricsEndpoint, name, trouble));
        if (trouble.overflows) {
          await until('the overflow', async () => {
            const found = await prometheus.query('llama_stage_telemetry_problems_total > 0');
            return found.length > 0 || undefined;
          });
        }
      }
      setTimeout(() => pipelines.get('vanished')?.stop(), PRESENT_MS);
      const isMissing = () =>
        Object.entries(PIPELINES).some(([name, [, expected]]) =>
          expected.some((alert) => !fired.get(name)?.has(alert)),
        );
      for (const end = performance.now() + 120_000; isMissing() && performance.now() < end; ) {
        await lookAgain();
      }
      // What fires without a reason gets as long again as most of those that have one.
      for (const end = performance.now() + 15_000; performance.now() < end; ) await lookAgain();
    });
    afterAll(async () => {
      await Promise.all([...(pipelines?.values() ?? [])].map((pipeline) => pipeline.stop()));
      await prometheus?.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    /** Takes down what fires, twice a second. */
    async function lookAgain(): Promise<void> {
      await sleep(500);
      for (const { metric } of await prometheus.query('ALERTS{alertstate="firing"}')) {
        const name = metric.service_namespace ?? metric.job?.split('/')[0] ?? '';
        const alerts = fired.get(name) ?? new Set();
        fired.set(name, alerts.add(`${metric.alertname} ${metric.severity}`));
      }
    }

    test('provoke every alert', () => {
      const alerts = ruleExpressions().filter(({ kind }) => kind === 'alert');
      const provoked = Object.values(PIPELINES).flatMap(([, expected]) =>
        expected.map((alert) => alert.split(' ')[0]),
      );
      expect(new Set(provoked)).toEqual(new Set(alerts.map(({ name }) => name)));
    });

    test.each(Object.entries(PIPELINES))('%s', (name, [, expected]) => {
      expect([...(fired.get(name) ?? [])].sort()).toEqual([...expected].sort());
    });
  },
);
