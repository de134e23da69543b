import type { Arguments } from './arguments.js';
import type { Measurements } from './measurements.js';

/** The result of the program, as `--json` writes it. */
export interface Report {
  readonly parameters: Omit<Arguments, 'json' | 'hold' | 'prometheusPort'>;
  /** CPU that each process used for a window, in milliseconds; the coordinator's first. */
  readonly cpuMsPerWindow: readonly number[];
  readonly control: Measurements;
  readonly pipelined: Measurements;
  /** Tokens per second of the pipelined run, divided by the control's. */
  readonly speedup: number;
  /** Whether every generation came out token for token as in the control. */
  readonly outputsEqual: boolean;
}

type Format = (value: number) => string;
const count: Format = (value) => value.toLocaleString('en-US', { maximumFractionDigits: 0 });
const decimal: Format = (value) => value.toFixed(2);
const percent: Format = (value) => `${(100 * value).toFixed(1)} %`;
const ms: Format = (value) => `${value.toFixed(value < 1 ? 2 : 1)} ms`;
const seconds: Format = (value) => `${value.toFixed(2)} s`;

type Row = readonly [label: string, format: Format, read: (run: Measurements) => number];

const QUESTIONS: readonly (readonly [title: string, rows: readonly Row[]])[] = [
  [
    '1. Did it raise the output rate?',
    [
      ['tokens per second', decimal, ({ q1 }) => q1.tokensPerSecond],
      ['elapsed', seconds, ({ q1 }) => q1.seconds],
    ],
  ],
  [
    '2. Did it cut the exposed latency?',
    [
      ['time to first token, median', ms, ({ q2 }) => q2.timeToFirstTokenMsP50],
      ['time to first token, 95th pct.', ms, ({ q2 }) => q2.timeToFirstTokenMsP95],
      ['between tokens, mean', ms, ({ q2 }) => q2.interTokenMsMean],
      ['between tokens, median', ms, ({ q2 }) => q2.interTokenMsP50],
      ['between tokens, 95th pct.', ms, ({ q2 }) => q2.interTokenMsP95],
      ['window round trip, mean', ms, ({ q2 }) => q2.windowMsMean],
    ],
  ],
  [
    '3. Was the queue actually full?',
    [
      ['windows opened', count, ({ q3 }) => q3.opened],
      ['average in flight', decimal, ({ q3 }) => q3.averageInFlight],
      ['time with 2 or more in flight', percent, ({ q3 }) => q3.parallelFraction],
      ['time with the depth used up', percent, ({ q3 }) => q3.fullFraction],
    ],
  ],
  [
    '4. Were the stages busy at the same time?',
    [
      ['two or more stages computing', seconds, ({ q4 }) => q4.overlapSeconds],
      ['share of the busy time', percent, ({ q4 }) => q4.overlapFraction],
      ['stages computing, mean', decimal, ({ q4 }) => q4.meanStagesComputing],
    ],
  ],
  [
    '5. Was the network delay hidden?',
    [
      ['windows on links, added up', seconds, ({ q5 }) => q5.linkSeconds],
      ['hidden behind compute', percent, ({ q5 }) => q5.hiddenFraction],
      ['exposed', seconds, ({ q5 }) => q5.exposedSeconds],
    ],
  ],
  [
    '6. What was wasted?',
    [
      ['recovery epochs', count, ({ q6 }) => q6.recoveryEpochs],
      ['windows marked stale', count, ({ q6 }) => q6.staleMarked],
      ['stale windows discarded', count, ({ q6 }) => q6.staleDiscarded],
      ['share of the windows', percent, ({ q6 }) => q6.staleFraction],
      ['waited for stale replies', seconds, ({ q6 }) => q6.staleDrainSeconds],
      ['stale stage-0 compute', seconds, ({ q6 }) => q6.staleStage0ComputeSeconds],
      ['stale forward write', seconds, ({ q6 }) => q6.staleForwardWriteSeconds],
      ['stale downstream wait', seconds, ({ q6 }) => q6.staleDownstreamWaitSeconds],
      ['stale verification, whole', seconds, ({ q6 }) => q6.staleVerifySeconds],
    ],
  ],
  [
    '7. Did the candidates stay useful?',
    [
      ['candidate tokens verified', count, ({ q7 }) => q7.proposedTokens],
      ['accepted', percent, ({ q7 }) => q7.acceptanceRate],
      ['accepted per window, mean', decimal, ({ q7 }) => q7.meanAcceptedLength],
      ['windows accepted whole', count, ({ q7 }) => q7.fullAcceptWindows],
      ['windows accepted in part', count, ({ q7 }) => q7.partialAcceptWindows],
      ['windows rejected', count, ({ q7 }) => q7.rejectWindows],
      ['windows without a candidate', count, ({ q7 }) => q7.unverifiedWindows],
    ],
  ],
  [
    '8. Did the horizon stay supplied?',
    [
      ['refills that found tokens', count, ({ q8 }) => q8.refillSuccesses],
      ['refills that missed', count, ({ q8 }) => q8.refillMisses],
      ['tokens appended', count, ({ q8 }) => q8.refillTokens],
    ],
  ],
];

const LABEL_WIDTH = 34;
const COLUMN_WIDTH = 12;

export function renderTable(report: Report): string {
  const { control, pipelined } = report;
  const lines = [row('', 'control', `depth ${report.parameters.depth}`)];
  for (const [title, rows] of QUESTIONS) {
    lines.push('', title);
    for (const [label, format, read] of rows) {
      const cell = (run: Measurements) => (Number.isNaN(read(run)) ? '–' : format(read(run)));
      lines.push(row(`  ${label}`, cell(control), cell(pipelined)));
    }
    if (title.startsWith('1')) lines.push(row('  speed-up', '', `${report.speedup.toFixed(2)} x`));
    if (title.startsWith('3')) lines.push(...levelRows(control, pipelined));
    if (title.startsWith('7')) lines.push(...lengthRows(control, pipelined));
  }
  lines.push('', '9. Was the output right?');
  lines.push(row('  token for token as the control', '', report.outputsEqual ? 'yes' : 'NO'));
  lines.push('', 'CPU for each window, both runs together');
  report.cpuMsPerWindow.forEach((cpuMs, stage) => {
    lines.push(row(`  ${stage === 0 ? 'coordinator' : `stage ${stage}`}`, '', ms(cpuMs)));
  });
  return lines.join('\n');
}

function levelRows(control: Measurements, pipelined: Measurements): string[] {
  return shareRows(
    (level) => `time with ${level} in flight`,
    control.q3.timeShareByLevel,
    pipelined.q3.timeShareByLevel,
  );
}

function lengthRows(control: Measurements, pipelined: Measurements): string[] {
  return shareRows(
    (index) => `${index + 1} or more accepted`,
    control.q7.shareAcceptedAtLeast,
    pipelined.q7.shareAcceptedAtLeast,
  );
}

function shareRows(
  label: (index: number) => string,
  control: readonly number[],
  pipelined: readonly number[],
): string[] {
  const at = (shares: readonly number[], index: number) => {
    const share = shares[index];
    return share === undefined ? '' : percent(share);
  };
  return Array.from({ length: Math.max(control.length, pipelined.length) }, (_, index) =>
    row(`  ${label(index)}`, at(control, index), at(pipelined, index)),
  );
}

function row(label: string, control: string, pipelined: string): string {
  return `${label.padEnd(LABEL_WIDTH)}${control.padStart(COLUMN_WIDTH)}${pipelined.padStart(COLUMN_WIDTH)}`;
}
