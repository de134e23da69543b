import { ALERTS } from './alerts.js';
import { recordingRules } from './recording-rules.js';

export interface RuleExpression {
  readonly kind: 'recording' | 'alert';
  readonly name: string;
  readonly promql: string;
}

/**
 * Everything that the rules ask of Prometheus. The range is that of the recorded rates; alerts ask
 * the recorded series, and so give nothing where the rules are not loaded.
 */
export function ruleExpressions(range?: string): RuleExpression[] {
  return [
    ...Object.values(recordingRules(range))
      .flat()
      .map(({ record, expr }) => ({ kind: 'recording' as const, name: record, promql: expr })),
    ...ALERTS.map(({ alert, expr }) => ({ kind: 'alert' as const, name: alert, promql: expr })),
  ];
}
