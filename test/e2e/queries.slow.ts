import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { Measurements } from '../../examples/pipeline/measurements.js';
import { panelQueries } from '../../operations/generator/dashboards/panel-queries.js';
import { ruleExpressions } from '../../operations/generator/rules/rule-expressions.js';
import { DEFAULTS } from '../../operations/generator/rules/rule-options.js';
import { type HeldExample, holdExample } from './example.js';
import { findMissing, freePortRange, until } from './programs.js';
import { Prometheus } from './prometheus.js';

const W = 'llama_stage_verify_window';
const STAGES = 4;
const WAYS = ['scraped', 'over OTLP'] as const;

/** Values for Grafana's variables; the example has run for longer than the range. */
const RANGE = '30s';
/** Five minutes of the rules are as long. */
const OPTIONS = { ...DEFAULTS, 'minute-seconds': 6 };
const VARIABLES: readonly (readonly [RegExp, string])[] = [
  [/\$__rate_interval|\$__range/g, RANGE],
  [/\$__interval/g, '5s'],
  [/\$\{?\w+(:\w+)?\}?/g, '.*'],
];

/** What an orderly pipeline has nothing for, and one that records no comparisons with a control. */
const TROUBLES = 'Troubles of the telemetry itself';
const COMPARISONS = 'Comparisons with the control';

describe.skipIf(findMissing(['prometheus']))('with the real Prometheus', () => {
  const servers = new Map<(typeof WAYS)[number], Prometheus>();
  const answers: string[] = [];
  let folder: string;
  let example: HeldExample;
  /** When the pipeline still ran, and what it exported then has arrived. */
  let duringTheRun: Date;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'llama-stage-otel-e2e-'));
    const port = await freePortRange(STAGES);
    const shipped = parse(readFileSync('operations/prometheus/prometheus.yaml', 'utf8'));
    const targets = Array.from({ length: STAGES }, (_, stage) => `127.0.0.1:${port + stage}`);
    for (const way of WAYS) {
      const own = join(folder, way);
      mkdirSync(own);
      servers.set(way, await Prometheus.start(own, configure(shipped, way, targets)));
    }
    example = await holdExample(
      port,
      ['--depth', '4', '--generations', '32', '--concurrency', '4'],
      { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: servers.get('over OTLP')?.metricsEndpoint ?? '' },
    );
    duringTheRun = new Date(Date.now() - 6000);
    const { control, pipelined } = example.report;
    for (const [way, prometheus] of servers) {
      await until(`every window, ${way}`, async () => {
        const [opened] = await prometheus.query(`sum(${W}_opened_total)`);
        return opened?.value === control.q3.opened + pipelined.q3.opened || undefined;
      });
    }
  });
  afterAll(async () => {
    mkdirSync('build', { recursive: true });
    writeFileSync('build/e2e-queries.txt', answers.join('\n'));
    await example?.stop();
    for (const prometheus of servers.values()) await prometheus.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  describe.each(WAYS)('%s', (way) => {
    /** The answer, of which the first figures go into the record of the run. */
    async function ask(title: string, promql: string, at?: Date) {
      const samples = (await servers.get(way)?.query(promql, at)) ?? [];
      const first = samples.slice(0, 3).map(({ value }) => Number(value.toPrecision(4)));
      answers.push(`${way} | ${title} | ${samples.length} series: ${first.join(', ')} | ${promql}`);
      return samples;
    }

    test.each(panelQueries().filter(({ datasource }) => datasource === 'prometheus'))(
      'the panel $dashboard / $panel has data: $promql',
      async ({ dashboard, panel, promql }) => {
        const query = VARIABLES.reduce((text, [name, value]) => text.replace(name, value), promql);
        const samples = await ask(`${dashboard} / ${panel}`, query, duringTheRun);
        if (panel === TROUBLES) expect(samples).toEqual([]);
        else if (panel !== COMPARISONS) expect(samples).not.toEqual([]);
      },
    );

    test.each(ruleExpressions(OPTIONS))(
      'the $kind rule $name can be evaluated',
      async ({ kind, name, promql }) => {
        const samples = await ask(`${kind} ${name}`, promql, duringTheRun);
        if (kind === 'recording') expect(samples).not.toEqual([]);
      },
    );

    const sum = (name: string) => `sum by (pipeline_run) (${W}_${name})`;
    test.each<[figure: string, promql: string, read: (run: Measurements) => number]>([
      [
        'tokens',
        'sum by (pipeline_run) (llama_stage_generation_output_tokens_total)',
        ({ q1 }) => q1.tokens,
      ],
      ['windows opened', sum('opened_total'), ({ q3 }) => q3.opened],
      [
        'the average in flight',
        `${sum('window_time_seconds_total')} / ${sum('occupancy_time_seconds_total')}`,
        ({ q3 }) => q3.averageInFlight,
      ],
      [
        'the parallel fraction',
        `${sum('parallel_time_seconds_total')} / ${sum('occupancy_time_seconds_total')}`,
        ({ q3 }) => q3.parallelFraction,
      ],
      [
        'the share of stale windows',
        `${sum('stale_discarded_total')} / ${sum('opened_total')}`,
        ({ q6 }) => q6.staleFraction,
      ],
      [
        'the acceptance rate',
        `${sum('accepted_tokens_total')} / ${sum('proposed_tokens_total')}`,
        ({ q7 }) => q7.acceptanceRate,
      ],
      ['tokens of refills', sum('horizon_refill_tokens_total'), ({ q8 }) => q8.refillTokens],
    ])('%s are those of the example’s own table', async (figure, promql, read) => {
      const samples = await ask(figure, promql);
      const byRun = samples.map(({ metric, value }) => [metric.pipeline_run, value]);
      expect(Object.fromEntries(byRun)).toEqual({
        control: expect.closeTo(read(example.report.control)),
        pipelined: expect.closeTo(read(example.report.pipelined)),
      });
    });

    test('every window is accounted for', async () => {
      const left = `sum(${W}_opened_total) - sum(${W}_completed_total) - sum(${W}_in_flight) - (sum(${W}_dropped_total) or vector(0))`;
      expect(await ask('windows not accounted for', left)).toEqual([{ metric: {}, value: 0 }]);
    });

    test('every window was computed once in each stage', async () => {
      const { control, pipelined } = example.report;
      const counts = await ask(
        'windows by stage',
        'sum by (llama_stage_stage_index) (llama_stage_stage_compute_duration_seconds_count)',
      );
      const byStage = counts.map(({ metric, value }) => [metric.llama_stage_stage_index, value]);
      const windows = control.q3.opened + pipelined.q3.opened;
      expect(Object.fromEntries(byStage)).toEqual({
        0: windows,
        1: windows,
        2: windows,
        3: windows,
      });
    });
  });
});

/** The configuration as it is shipped, but for how often, from where, and with which rules. */
function configure(
  shipped: { readonly scrape_configs: readonly object[] },
  way: (typeof WAYS)[number],
  targets: readonly string[],
): object {
  return {
    ...shipped,
    global: { scrape_interval: '1s', evaluation_interval: '1s' },
    rule_files: [resolve('operations/prometheus/rules.yaml')],
    scrape_configs:
      way === 'over OTLP'
        ? []
        : shipped.scrape_configs.map((job) => ({
            ...job,
            file_sd_configs: [],
            static_configs: [{ targets }],
          })),
  };
}
