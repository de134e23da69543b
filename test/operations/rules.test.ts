import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { INSTRUMENTS } from '../../operations/generator/instruments.js';
import { prometheusName, scrapedName } from '../../operations/generator/prometheus-names.js';
import { ALERTS } from '../../operations/generator/rules/alerts.js';
import { RECORDINGS } from '../../operations/generator/rules/recordings.js';
import { writeRules } from '../../operations/generator/rules/write-rules.js';
import { writePrometheusConfig } from '../../operations/generator/write-prometheus-config.js';

const read = (path: string) => readFileSync(`operations/${path}`, 'utf8');

test.each([...writeRules(), ...writePrometheusConfig()])(
  '%s is what is generated',
  (path, text) => {
    expect(read(path)).toBe(text);
  },
);

describe('the recording rules', () => {
  test('have a level, a metric and an operation in their names, and names of their own', () => {
    const names = RECORDINGS.map(({ record }) => record);
    for (const name of names) expect(name).toMatch(/^[a-z_]+:[a-z_0-9]+:[a-z_0-9]+$/);
    expect(new Set(names).size).toBe(names.length);
  });
});

describe.each(ALERTS)('the alert $alert', ({ alert, expr }) => {
  test('has a case in which it fires, and one in which it does not', () => {
    const { tests } = parse(read('prometheus/rules.test.yaml'));
    const expected = tests
      .flatMap((group: { alert_rule_test: object[] }) => group.alert_rule_test)
      .filter(({ alertname }: { alertname: string }) => alertname === alert)
      .map(({ exp_alerts }: { exp_alerts: object[] }) => exp_alerts.length > 0);
    expect(new Set(expected)).toEqual(new Set([true, false]));
  });

  test('has a section in the runbook, with what to do and why', () => {
    const [, section = ''] = read('runbook.md').split(`## ${alert}\n`);
    const [own = ''] = section.split('\n## ');
    const parts = [...own.matchAll(/^\*\*(\w[\w ]*)\.\*\*/gm)].map(([, name]) => name);
    expect(parts).toEqual(['Meaning', 'Be sure', 'Causes', 'Do', 'Threshold']);
  });

  test('asks for nothing that is not recorded', () => {
    const recorded = new Set(RECORDINGS.map(({ record }) => record));
    const asked = expr.match(/[a-z_]+:[a-z_0-9]+:[a-z_0-9]+/g) ?? [];
    expect(asked.filter((name) => !recorded.has(name))).toEqual([]);
    expect(asked).not.toEqual([]);
  });
});

describe('scraped names', () => {
  const { scrape_configs } = parse(read('prometheus/prometheus.yaml'));
  const rules: { regex: string; replacement: string }[] = scrape_configs[0].metric_relabel_configs;

  /** As Prometheus relabels: the whole name has to match, one rule after the other. */
  const relabel = (name: string) =>
    rules.reduce((current, { regex, replacement }) => {
      const template = replacement.replace(/\$\{(\d)\}/g, '$$$1');
      return current.replace(new RegExp(`^(?:${regex})$`), template);
    }, name);

  test.each(INSTRUMENTS)('$name becomes what it is over OTLP', (instrument) => {
    const suffixes = instrument.kind === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    for (const suffix of suffixes) {
      const name = prometheusName(instrument) + suffix;
      expect(relabel(scrapedName(instrument) + suffix)).toBe(name);
      expect(relabel(name)).toBe(name);
    }
  });

  test.each(['up', 'target_info', 'http_server_duration_bucket', 'process_cpu_time_total'])(
    '%s of others stays as it is',
    (name) => expect(relabel(name)).toBe(name),
  );
});
