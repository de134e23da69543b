import { ALERTS } from './alerts.js';
import { RECORDINGS } from './recordings.js';

export interface RuleQuery {
  readonly kind: 'record' | 'alert';
  readonly name: string;
  readonly promql: string;
}

/** The expression of every rule. */
export function ruleQueries(): readonly RuleQuery[] {
  return [
    ...RECORDINGS.map(
      ({ record, expr }) => ({ kind: 'record', name: record, promql: expr }) as const,
    ),
    ...ALERTS.map(({ alert, expr }) => ({ kind: 'alert', name: alert, promql: expr }) as const),
  ];
}
