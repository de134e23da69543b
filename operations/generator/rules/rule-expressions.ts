import { alerts } from './alerts.js';
import { recordingRules } from './recording-rules.js';
import { DEFAULTS, type RuleOptions } from './rule-options.js';

export interface RuleExpression {
  readonly kind: 'recording' | 'alert';
  readonly name: string;
  readonly promql: string;
}

/**
 * Everything that the rules ask of Prometheus. Alerts ask the recorded series, and so give nothing
 * where the rules are not loaded.
 */
export function ruleExpressions(options: RuleOptions = DEFAULTS): RuleExpression[] {
  return [
    ...Object.values(recordingRules(options))
      .flat()
      .map(({ record, expr }) => ({ kind: 'recording' as const, name: record, promql: expr })),
    ...alerts(options).map(({ alert, expr }) => ({
      kind: 'alert' as const,
      name: alert,
      promql: expr,
    })),
  ];
}
