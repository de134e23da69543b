import { stringify } from 'yaml';
import { type Alert, alerts } from './alerts.js';
import { recordingRules } from './recording-rules.js';
import { DEFAULTS, duration, type RuleOptions } from './rule-options.js';

/** Prometheus' rule file. */
export function writeRules(options: RuleOptions = DEFAULTS): string {
  const groups = [
    ...Object.entries(recordingRules(options)).map(([name, rules]) => ({ name, rules })),
    {
      name: 'llama-stage-alerts',
      rules: alerts(options).map((alert) => alertingRule(alert, options)),
    },
  ];
  return `# Generated from operations/generator/rules: do not edit.\n${stringify({ groups })}`;
}

function alertingRule(
  { alert, expr, for: minutes, severity, summary, description }: Alert,
  options: RuleOptions,
) {
  return {
    alert,
    expr,
    for: duration(minutes, options),
    labels: { severity },
    annotations: {
      summary,
      description,
      runbook_url: `${options['runbook-url']}#${alert.toLowerCase()}`,
    },
  };
}
