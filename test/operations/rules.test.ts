import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { prometheusName, scrapedName } from '../../operations/generator/prometheus-names.js';
import { type Relabel, relabelScraped } from '../../operations/generator/relabel.js';
import { ruleExpressions } from '../../operations/generator/rules/rule-expressions.js';
import { DEFAULTS } from '../../operations/generator/rules/rule-options.js';
import { writePrometheusConfig } from '../../operations/generator/rules/write-prometheus-config.js';
import { writeRules } from '../../operations/generator/rules/write-rules.js';
import { writeFigures } from '../../operations/generator/write-figures.js';
import * as instruments from '../../semconv/instruments.js';

const OPERATIONS = join(import.meta.dirname, '../../operations');
const read = (path: string) => readFileSync(join(OPERATIONS, path), 'utf8');

describe('generated files', () => {
  it.each([
    ['prometheus/rules.yaml', writeRules()],
    ['prometheus/prometheus.yaml', writePrometheusConfig()],
    ['figures.md', writeFigures()],
  ])('%s is what the conventions yield', (path, text) => {
    expect(read(path)).toBe(text);
  });
});

interface AlertingRule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<'summary' | 'description' | 'runbook_url', string>>;
}

interface RuleFile {
  readonly groups: { readonly rules: (AlertingRule | { readonly record: string })[] }[];
}

const rules = (parse(writeRules()) as RuleFile).groups.flatMap((group) => group.rules);
const alerts = rules.filter((rule) => 'alert' in rule);

/** The sections of the runbook, by the anchor that their heading has. */
const sections = new Map(
  read('runbook.md')
    .split(/^## /m)
    .slice(1)
    .map((text) => {
      const [heading = ''] = text.split('\n');
      return [heading.toLowerCase().replaceAll(' ', '-'), text];
    }),
);

describe('rules', () => {
  it('are all among the expressions, each name once', () => {
    const names = rules.map((rule) => ('alert' in rule ? rule.alert : rule.record));
    expect(ruleExpressions().map(({ name }) => name)).toEqual(names);
    const identities = rules.map((rule) =>
      'alert' in rule ? `${rule.alert} ${rule.labels.severity}` : rule.record,
    );
    expect(new Set(identities).size).toBe(identities.length);
  });

  it('ask only for series that exist, or that another rule records', () => {
    const exported = Object.values(instruments).flatMap((instrument) => {
      const name = prometheusName(instrument);
      return instrument.kind === 'histogram'
        ? [`${name}_bucket`, `${name}_sum`, `${name}_count`]
        : [name];
    });
    const recorded = rules.flatMap((rule) => ('record' in rule ? [rule.record] : []));
    const known = new Set([...exported, ...recorded]);
    for (const { promql } of ruleExpressions()) {
      const asked = [...promql.matchAll(/\b[\w:]+(?=[{[])|\b\w+:[\w:]+/g)].map(([name]) => name);
      expect(asked).not.toEqual([]);
      for (const name of asked) expect(known).toContain(name);
    }
  });

  it('range over at least two exports of the interval that the SDK has', () => {
    for (const { promql } of ruleExpressions()) {
      for (const [, range = ''] of promql.matchAll(/\[(\w+)\]/g)) {
        expect(seconds(range), promql).toBeGreaterThanOrEqual(120);
      }
    }
  });

  it('take shorter ranges and waits where a minute has fewer seconds', () => {
    const options = { ...DEFAULTS, 'minute-seconds': 6 };
    const texts = [writeRules(), writeRules(options)];
    const [long = [], short = []] = texts.map((text) =>
      [...text.matchAll(/(?:\[|for: |offset )(\d\w+)/g)].map(([, time = '']) => seconds(time)),
    );
    expect(long.length).toBeGreaterThan(60);
    expect(short).toEqual(long.map((time) => time / 10));
  });

  it('lead to the runbook of the deployment', () => {
    const address = 'https://git.example/runbook.md';
    const { groups } = parse(writeRules({ ...DEFAULTS, 'runbook-url': address })) as RuleFile;
    const urls = groups.flatMap(({ rules }) =>
      rules.flatMap((rule) => ('alert' in rule ? [rule.annotations.runbook_url] : [])),
    );
    expect(urls[0]).toBe(`${address}#llamastagepipelinestalled`);
  });

  it('judge objectives by the bounds and shares of the deployment', () => {
    const rules = parse(
      writeRules({ ...DEFAULTS, 'token-seconds': 1, 'token-objective': 0.975 }),
    ) as RuleFile;
    const text = JSON.stringify(rules);
    expect(text).toContain('took more than 1 s for each token; the objective leaves 2.5 %');
    expect(text).toContain('job:llama_stage_generation_tokens_late:ratio_rate1h > 0.36');
    expect(text).toContain('gen_ai_server_time_per_output_token_seconds_bucket{le=~\\"1(');
    const between = { ...DEFAULTS, 'first-token-seconds': 0.3 };
    expect(() => writeRules(between)).toThrow('no bucket that ends at 0.3 s');
  });
});

describe.each(alerts)('$alert, $labels.severity', (rule) => {
  const tests = (parse(read('prometheus/rules.test.yaml')) as { tests: RuleTest[] }).tests
    .flatMap(({ alert_rule_test }) => alert_rule_test)
    .filter(({ alertname }) => alertname === rule.alert);

  it('is tested firing and not firing', () => {
    const severities = tests.map(({ exp_alerts }) =>
      exp_alerts.map(({ exp_labels }) => exp_labels.severity),
    );
    expect(severities.flat()).toContain(rule.labels.severity);
    expect(severities).toContainEqual([]);
  });

  it('has a severity, waits, and says what is wrong', () => {
    expect(['critical', 'warning', 'info']).toContain(rule.labels.severity);
    expect(rule.for).toMatch(/^\d+[mh]$/);
    expect(rule.annotations.summary).toMatch(/^.{10,80}$/);
    expect(rule.annotations.description).toContain('{{ $value');
  });

  it('leads to its section of the runbook, which tells its severity, its wait and its threshold', () => {
    const [file, anchor = ''] = rule.annotations.runbook_url.split('#');
    expect(file).toBe('operations/runbook.md');
    const section = sections.get(anchor) ?? '';
    expect(section).toContain(`**${rule.labels.severity}**, after ${parseInt(rule.for, 10)} min`);
    for (const part of ['Means', 'Confirm', 'Causes', 'Do', 'Why this threshold']) {
      expect(section).toContain(`**${part}.**`);
    }
    const [head = ''] = section.split('**Means.**');
    const first = head.slice(head.indexOf(`**${rule.labels.severity}**`));
    for (const [, limit] of rule.expr.matchAll(/(?:[<>]=?|==) ([\d.]+)/g)) {
      expect(first).toMatch(new RegExp(`[<>=] ${limit}(?![\\d.]*\\d)`));
    }
  });
});

interface RuleTest {
  readonly alert_rule_test: {
    readonly alertname: string;
    readonly exp_alerts: { readonly exp_labels: { readonly severity: string } }[];
  }[];
}

describe('relabelling of what is scraped', () => {
  const suffixesOf = ({ kind }: instruments.Instrument) =>
    kind === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
  const series = Object.values(instruments).flatMap((instrument) =>
    suffixesOf(instrument).map((suffix) => [
      `${scrapedName(instrument)}${suffix}`,
      `${prometheusName(instrument)}${suffix}`,
    ]),
  );

  it.each(series)('makes %s what comes over OTLP', (scraped = '', pushed = '') => {
    const labels = { job: 'a', le: '0.5', otel_scope_name: 'b' };
    expect(relabel({ __name__: scraped, ...labels })).toEqual({ __name__: pushed, ...labels });
    expect(relabel({ __name__: pushed, ...labels })).toEqual({ __name__: pushed, ...labels });
  });

  it.each([
    ['1.0', '1'],
    ['10.0', '10'],
    ['0.0005', '0.0005'],
    ['2.5', '2.5'],
    ['+Inf', '+Inf'],
  ])('makes %s of a bucket %s', (scraped, pushed) => {
    for (const [name = ''] of series.filter(([name]) => name?.endsWith('_bucket'))) {
      expect(relabel({ __name__: name, le: scraped }).le).toBe(pushed);
    }
  });

  it.each([
    'target_info',
    'up',
    'http_server_duration_sum',
    'http_server_duration_bucket',
    'my_llama_stage_verify_window_duration_sum',
    'llama_stage_verify_window_duration_sum_total',
    'llama_stage_verify_window_full_time',
    'llama_stage_verify_window_queue_time_total',
  ])('leaves %s alone', (name) => {
    expect(relabel({ __name__: name, le: '1.0' })).toEqual({ __name__: name, le: '1.0' });
  });
});

/** What Prometheus does with a series. */
function relabel(series: Readonly<Record<string, string>>): Record<string, string> {
  return relabelScraped().reduce(applyRelabel, { ...series });
}

function applyRelabel(
  series: Record<string, string>,
  { source_labels, regex, target_label, replacement }: Relabel,
): Record<string, string> {
  const source = source_labels.map((label) => series[label] ?? '').join(';');
  const match = new RegExp(`^(?:${regex})$`).exec(source);
  if (match === null) return series;
  const value = replacement.replaceAll(/\$\{(\d)\}/g, (_, group) => match[Number(group)] ?? '');
  return { ...series, [target_label]: value };
}

/** Of a duration as Prometheus writes it. */
function seconds(duration: string): number {
  const [, count, unit = ''] = /^(\d+)(ms|m|h)$/.exec(duration) ?? [];
  return Number(count) * ({ ms: 0.001, m: 60, h: 3600 }[unit] ?? Number.NaN);
}
