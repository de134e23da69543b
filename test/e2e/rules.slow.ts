import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { ruleExpressions } from '../../operations/generator/rules/rule-expressions.js';
import { DEFAULTS } from '../../operations/generator/rules/rule-options.js';
import { type HeldExample, holdExample } from './example.js';
import { findMissing, findProgram, freePortRange, getJson, until } from './programs.js';
import { Prometheus } from './prometheus.js';

const STAGES = 4;
const FILES = join(import.meta.dirname, '../../operations/prometheus');

describe.skipIf(findMissing(['promtool']))('promtool', () => {
  const promtool = (...args: string[]) =>
    promisify(execFile)(findProgram('promtool') ?? 'promtool', args);

  test('takes the configuration', async () => {
    await promtool('check', 'config', '--lint=all', '--lint-fatal', join(FILES, 'prometheus.yaml'));
  });

  test('takes the rules', async () => {
    await promtool('check', 'rules', '--lint=all', '--lint-fatal', join(FILES, 'rules.yaml'));
  });

  test('finds that each alert fires when it should, and only then', async () => {
    const { stdout } = await promtool('test', 'rules', join(FILES, 'rules.test.yaml'));
    expect(stdout).toContain('SUCCESS');
  });
});

describe.skipIf(findMissing(['prometheus']))(
  'the real Prometheus, pushed to and scraping by its configuration',
  () => {
    let folder: string;
    let prometheus: Prometheus;
    let example: HeldExample;

    beforeAll(async () => {
      folder = mkdtempSync(join(tmpdir(), 'llama-stage-otel-e2e-'));
      cpSync(FILES, folder, { recursive: true });
      mkdirSync(join(folder, 'workers'), { recursive: true });
      prometheus = await Prometheus.startWith(join(folder, 'prometheus.yaml'), folder);
      const port = await freePortRange(STAGES);
      const targets = Array.from({ length: STAGES }, (_, stage) => ({
        targets: [`127.0.0.1:${port + stage}`],
        labels: {
          job: `scraped/llama-stage-${stage === 0 ? 'coordinator' : stage}`,
          service_namespace: 'scraped',
          __scrape_interval__: '1s',
          __scrape_timeout__: '1s',
        },
      }));
      writeFileSync(join(folder, 'workers/example.yaml'), stringify(targets));
      example = await holdExample(port, ['--generations', '12'], {
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: prometheus.metricsEndpoint,
        OTEL_RESOURCE_ATTRIBUTES: 'service.namespace=pushed',
      });
      await until('all to have arrived both ways', async () => {
        const opened = await prometheus.query(
          'sum by (job) (llama_stage_verify_window_opened_total)',
        );
        const [pushed, scraped] = opened.map(({ value }) => value);
        return (opened.length === 2 && pushed === scraped) || undefined;
      });
    });
    afterAll(async () => {
      await example?.stop();
      await prometheus?.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    test('has the same series both ways', async () => {
      const series = async (way: string) => {
        const { data } = await getJson<{ data: Record<string, string>[] }>(
          `${prometheus.url}/api/v1/series?${new URLSearchParams({
            'match[]': `{__name__=~"(llama_stage|gen_ai)_.*", job=~"${way}/.*"}`,
          })}`,
        );
        return data.map(describeSeries).sort();
      };
      const scraped = await series('scraped');
      expect(scraped).toContain(
        '__name__=llama_stage_stage_compute_duration_seconds_sum job=llama-stage-2 llama_stage_stage_index=2',
      );
      expect(scraped).toEqual(await series('pushed'));
    });

    const recordings = ruleExpressions({ ...DEFAULTS, 'minute-seconds': 12 }).filter(
      ({ kind }) => kind === 'recording',
    );
    test.each(recordings)('records $name of both', async ({ promql }) => {
      const samples = await prometheus.query(promql);
      const ways = samples.map(
        ({ metric }) => metric.service_namespace ?? metric.job?.split('/')[0],
      );
      expect(new Set(ways)).toEqual(new Set(['pushed', 'scraped']));
      for (const { value } of samples) expect(value).not.toBeNaN();
    });

    test('evaluates every rule without an error', async () => {
      const rules = await until('all rules to be evaluated', async () => {
        const { data } = await getJson<{ data: { groups: { rules: Rule[] }[] } }>(
          `${prometheus.url}/api/v1/rules`,
        );
        const rules = data.groups.flatMap(({ rules }) => rules);
        return rules.every(({ health }) => health !== 'unknown') ? rules : undefined;
      });
      const names = (named: readonly { readonly name: string }[]) => named.map(({ name }) => name);
      expect(names(rules).sort()).toEqual(names(ruleExpressions()).sort());
      expect(rules.filter(({ health }) => health !== 'ok')).toEqual([]);
    });
  },
);

interface Rule {
  readonly name: string;
  readonly health: string;
}

/** Without what differs by the way: the instance, the scope's labels, and what is promoted. */
function describeSeries(labels: Record<string, string>): string {
  const { instance, llama_stage_stage_id, service_namespace, job, ...rest } = labels;
  return Object.entries({ ...rest, job: job?.split('/')[1] })
    .filter(([label]) => !label.startsWith('otel_scope_'))
    .map(([label, value]) => `${label}=${value}`)
    .sort()
    .join(' ');
}
