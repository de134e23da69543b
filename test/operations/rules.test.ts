import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { prometheusName, scrapedName } from '../../operations/generator/prometheus-names.js';
import { type Relabel, relabelScraped } from '../../operations/generator/relabel.js';
import { ruleExpressions } from '../../operations/generator/rules/rule-expressions.js';
import { writePrometheusConfig } from '../../operations/generator/rules/write-prometheus-config.js';
import { writeRules } from '../../operations/generator/rules/write-rules.js';
import * as instruments from '../../semconv/instruments.js';

const OPERATIONS = join(import.meta.dirname, '../../operations');
const read = (path: string) => readFileSync(join(OPERATIONS, path), 'utf8');

describe('generated files', () => {
  it.each([
    ['prometheus/rules.yaml', writeRules()],
    ['prometheus/prometheus.yaml', writePrometheusConfig()],
  ])('%s is what the conventions yield', (path, text) => {
    expect(read(path)).toBe(text);
  });
});

interface AlertingRule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<'summary' | 'description' | 'runbook', string>>;
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
    expect(new Set(names).size).toBe(names.length);
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

  it('rate over another range where one is given', () => {
    for (const { kind, promql } of ruleExpressions('30s')) {
      if (kind === 'recording') expect(promql).toMatch(/\[30s\](?!.*\[5m\])/);
    }
  });
});

describe.each(alerts)('$alert', (rule) => {
  const tests = (parse(read('prometheus/rules.test.yaml')) as { tests: RuleTest[] }).tests
    .flatMap(({ alert_rule_test }) => alert_rule_test)
    .filter(({ alertname }) => alertname === rule.alert);

  it('is tested firing and not firing', () => {
    expect(tests.some(({ exp_alerts }) => exp_alerts.length > 0)).toBe(true);
    expect(tests.some(({ exp_alerts }) => exp_alerts.length === 0)).toBe(true);
  });

  it('has a severity, waits, and says what is wrong', () => {
    expect(['critical', 'warning', 'info']).toContain(rule.labels.severity);
    expect(rule.for).toMatch(/^\d+m$/);
    expect(rule.annotations.summary).toMatch(/^.{10,80}$/);
    expect(rule.annotations.description).toContain('{{ $value');
  });

  it('leads to its section of the runbook, which tells its severity, its wait and its threshold', () => {
    const [file, anchor = ''] = rule.annotations.runbook.split('#');
    expect(file).toBe('operations/runbook.md');
    const section = sections.get(anchor) ?? '';
    expect(section).toContain(`**${rule.labels.severity}**, after ${parseInt(rule.for, 10)} min`);
    for (const part of ['Means', 'Confirm', 'Causes', 'Do', 'Why this threshold']) {
      expect(section).toContain(`**${part}.**`);
    }
    const [first = ''] = section.split('**Means.**');
    for (const [, limit] of rule.expr.matchAll(/(?:[<>]=?|==) ([\d.]+)/g)) {
      expect(first).toContain(limit);
    }
  });
});

interface RuleTest {
  readonly alert_rule_test: { readonly alertname: string; readonly exp_alerts: unknown[] }[];
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
