import { QUESTIONS } from '../../semconv/generator/questions.js';
import * as I from '../../semconv/instruments.js';
import * as dashboards from './dashboards/expressions.js';
import * as promql from './promql.js';
import { objectives, recordingRules } from './rules/recording-rules.js';
import { DEFAULTS, type RuleOptions } from './rules/rule-options.js';

/** A figure that no metric gives by itself. */
type Derived = readonly [
  question: number,
  name: string,
  meaning: string,
  write: (scope: promql.Scope) => string,
];

function figuresOf(options: RuleOptions): readonly Derived[] {
  const { failed, firstTokenLate, tokensLate } = objectives(options);
  return [
    [
      1,
      'Output rate',
      'Tokens that are committed, per second.',
      (scope) => promql.rate(I.INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS, scope),
    ],
    [
      1,
      'Output rate of one generation',
      'Tokens that a generation commits, per second that its scheduler lives.',
      promql.outputRateOfOne,
    ],
    [
      1,
      'Generations under way',
      'On average over time: seconds that schedulers lived, per second.',
      dashboards.generationsUnderWay,
    ],
    [
      1,
      'Failed generations',
      'Those that failed or were lost, as a share of those that were not called off.',
      failed.bad.promql,
    ],
    [
      2,
      'Late first tokens',
      `Share of the generations that wait for more than ${options['first-token-seconds']} s.`,
      firstTokenLate.bad.promql,
    ],
    [
      2,
      'Late tokens',
      `Share of the generations that take more than ${options['token-seconds']} s for each token.`,
      tokensLate.bad.promql,
    ],
    [
      3,
      'Average in flight',
      'Windows in flight of a generation, on average over time; exact.',
      promql.averageInFlight,
    ],
    [3, 'Depth', 'Of a generation, on average over those under way.', dashboards.depth],
    [
      3,
      'Parallel fraction',
      "Share of the generations' time with two or more windows in flight.",
      promql.parallelFraction,
    ],
    [
      3,
      'Full fraction',
      "Share of the generations' time with as many as the depth allows.",
      promql.fullFraction,
    ],
    [
      4,
      'Busy share of a stage',
      'Share of its time that a worker of the stage computes.',
      dashboards.busyShare,
    ],
    [
      4,
      'Stages computing at once',
      'In one chain, on average: the busy shares, added up.',
      dashboards.stagesComputing,
    ],
    [
      4,
      'Limit of the slowest stage',
      'Windows per second that it could compute if it never waited.',
      dashboards.slowestStageLimit,
    ],
    [
      5,
      'Hidden waiting',
      'Share of what stage 0 waited for windows in which its generation had another on the way.',
      dashboards.hiddenShare,
    ],
    [
      5,
      'Links and queues of a window',
      'Seconds of its way that are neither compute nor a write.',
      dashboards.linksAndQueuesPerWindow,
    ],
    [
      5,
      'Reverse fallback',
      'Share of the generations whose predictions come back over it.',
      promql.reverseFallbackFraction,
    ],
    [
      6,
      'Stale windows',
      'Stale windows that drained, as a share of those opened.',
      promql.staleFraction,
    ],
    [
      7,
      'Acceptance rate',
      'Accepted candidates, as a share of those proposed.',
      promql.acceptanceRate,
    ],
    [
      7,
      'Acceptance by position',
      'Share of the verified windows in which the candidate at a position was accepted; here the third.',
      (scope) =>
        promql.shareAbove(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH, 2, scope),
    ],
    [
      8,
      'Refill hit rate',
      'Horizon refills that found tokens, as a share of the attempts.',
      promql.refillHitRate,
    ],
    [
      8,
      'Idle fraction',
      "Share of the generations' time with nothing in flight.",
      promql.idleFraction,
    ],
  ];
}

const HEADER = `\
<!-- Generated from operations/generator: do not edit. -->

# Derived figures

What the dashboards and rules make of the metrics, as they are written for Prometheus. The formulas
here are over all workers and five minutes; dashboards take the chosen workers and an interval that
suits the panel, and rules keep the labels of what they are about. Divisions by nothing give nothing.
`;

/** The page on what is derived from the metrics. */
export function writeFigures(given: RuleOptions = DEFAULTS): string {
  const options = { ...given, 'minute-seconds': DEFAULTS['minute-seconds'] };
  const all = figuresOf(options);
  const records = new Map(
    Object.values(recordingRules(options))
      .flat()
      .map(({ record, expr }) => [expr, record]),
  );
  const sections = QUESTIONS.flatMap((question, index) => {
    const figures = all.filter(([number]) => number === index + 1);
    if (figures.length === 0) return [];
    return [
      `## ${index + 1}. ${question}\n`,
      ...figures.map((figure) => describe(figure, records)),
    ];
  });
  return [HEADER, ...sections].join('\n');
}

function describe([, name, meaning, write]: Derived, records: ReadonlyMap<string, string>) {
  const record = records.get(write({ range: '5m', by: 'job' }));
  const recorded = record === undefined ? '' : ` Recorded as \`${record}\`.`;
  return `**${name}.** ${meaning}${recorded}\n\n\`\`\`promql\n${write({ range: '5m' })}\n\`\`\`\n`;
}
