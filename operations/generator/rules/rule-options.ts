/** What a deployment sets for itself; the flags of the generator have the same names. */
export interface RuleOptions {
  /** How many seconds a minute of the rules has: less than 60 to try them out. */
  readonly 'minute-seconds': number;
  /** The address of the runbook, in front of `#` and the name of the alert. */
  readonly 'runbook-url': string;
  /** The share of generations that has to end well. */
  readonly 'completed-objective': number;
  /** The share of generations whose first token comes in time, and the time; a bucket's boundary. */
  readonly 'first-token-objective': number;
  readonly 'first-token-seconds': number;
  /** The share of generations whose tokens come in time, and the time of each; a bucket's boundary. */
  readonly 'token-objective': number;
  readonly 'token-seconds': number;
}

export const DEFAULTS: RuleOptions = {
  'minute-seconds': 60,
  'runbook-url': 'operations/runbook.md',
  'completed-objective': 0.99,
  'first-token-objective': 0.95,
  'first-token-seconds': 2.5,
  'token-objective': 0.95,
  'token-seconds': 0.1,
};

/** So many minutes of the rules, as Prometheus writes a duration. */
export function duration(minutes: number, { 'minute-seconds': second }: RuleOptions): string {
  return second === 60 ? windowName(minutes) : `${Math.round(minutes * second * 1000)}ms`;
}

/** How so many minutes stand in the name of a recorded series, however long they are. */
export function windowName(minutes: number): string {
  return minutes > 0 && minutes % 60 === 0 ? `${minutes / 60}h` : `${minutes}m`;
}
