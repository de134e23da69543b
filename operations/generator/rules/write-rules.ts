import { stringify } from 'yaml';
import { ALERTS, type Alert } from './alerts.js';
import { recordingRules } from './recording-rules.js';

/** Prometheus' rule file. */
export function writeRules(): string {
  const groups = [
    ...Object.entries(recordingRules()).map(([name, rules]) => ({ name, rules })),
    { name: 'llama-stage-alerts', rules: ALERTS.map(alertingRule) },
  ];
  return `# Generated from operations/generator/rules: do not edit.\n${stringify({ groups })}`;
}

function alertingRule({ alert, expr, for: duration, severity, summary, description }: Alert) {
  return {
    alert,
    expr,
    for: duration,
    labels: { severity },
    annotations: {
      summary,
      description,
      runbook: `operations/runbook.md#${alert.toLowerCase()}`,
    },
  };
}
