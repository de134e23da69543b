import { QUESTIONS } from '../../semconv/generator/questions.js';
import * as I from '../../semconv/instruments.js';
import * as dashboards from './dashboards/expressions.js';
import * as promql from './promql.js';
import { objectives, recordingRules } from './rules/recording-rules.js';
import { DEFAULTS } from './rules/rule-options.js';

/** A figure that no metric gives by itself. */
interface Derived {
  readonly name: string;
  readonly question: number;
  readonly meaning: string;
  promql(scope: promql.Scope): string;
}

const figure = (
  question: number,
  name: string,
  meaning: string,
  write: Derived['promql'],
): Derived => ({ question, name, meaning, promql: write });

const { failed, firstTokenLate, tokensLate } = objectives(DEFAULTS);

const FIGURES: readonly Derived[] = [
  figure(1, 'Output rate', 'Tokens that are committed, per second.', (scope) =>
    promql.rate(I.INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS, scope),
  ),
  figure(
    1,
    'Output rate of one generation',
    'Tokens that a generation commits, per second that its scheduler lives.',
    promql.outputRateOfOne,
  ),
  figure(
    1,
    'Generations under way',
    'On average over time: seconds that schedulers lived, per second.',
    dashboards.generationsUnderWay,
  ),
  figure(
    1,
    'Failed generations',
    'Those that failed or were lost, as a share of those that were not called off.',
    failed.bad.promql,
  ),
  figure(
    2,
    'Late first tokens',
    `Share of the generations that wait for more than ${DEFAULTS['first-token-seconds']} s.`,
    firstTokenLate.bad.promql,
  ),
  figure(
    2,
    'Late tokens',
    `Share of the generations that take more than ${DEFAULTS['token-seconds']} s for each token.`,
    tokensLate.bad.promql,
  ),
  figure(
    3,
    'Average in flight',
    'Windows in flight of a generation, on average over time; exact.',
    promql.averageInFlight,
  ),
  figure(3, 'Depth', 'Of a generation, on average over those under way.', dashboards.depth),
  figure(
    3,
    'Parallel fraction',
    "Share of the generations' time with two or more windows in flight.",
    promql.parallelFraction,
  ),
  figure(
    3,
    'Full fraction',
    "Share of the generations' time with as many as the depth allows.",
    promql.fullFraction,
  ),
  figure(
    4,
    'Busy share of a stage',
    'Share of its time that a worker of the stage computes.',
    dashboards.busyShare,
  ),
  figure(
    4,
    'Stages computing at once',
    'In one chain, on average: the busy shares, added up.',
    dashboards.stagesComputing,
  ),
  figure(
    4,
    'Limit of the slowest stage',
    'Windows per second that it could compute if it never waited.',
    dashboards.slowestStageLimit,
  ),
  figure(
    5,
    'Hidden waiting',
    'Share of what stage 0 waited for windows in which its generation had another on the way.',
    dashboards.hiddenShare,
  ),
  figure(
    5,
    'Links and queues of a window',
    'Seconds of its way that are neither compute nor a write.',
    dashboards.linksAndQueuesPerWindow,
  ),
  figure(
    5,
    'Reverse fallback',
    'Share of the generations whose predictions come back over it.',
    promql.reverseFallbackFraction,
  ),
  figure(
    6,
    'Stale windows',
    'Stale windows that drained, as a share of those opened.',
    promql.staleFraction,
  ),
  figure(
    7,
    'Acceptance rate',
    'Accepted candidates, as a share of those proposed.',
    promql.acceptanceRate,
  ),
  figure(
    7,
    'Acceptance by position',
    'Share of the verified windows in which the candidate at a position was accepted; here the third.',
    (scope) => promql.shareAbove(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH, 2, scope),
  ),
  figure(
    8,
    'Refill hit rate',
    'Horizon refills that found tokens, as a share of the attempts.',
    promql.refillHitRate,
  ),
  figure(
    8,
    'Idle fraction',
    "Share of the generations' time with nothing in flight.",
    promql.idleFraction,
  ),
];

const HEADER = `\
<!-- Generated from operations/generator: do not edit. -->

# Derived figures

What the dashboards and rules make of the metrics, as they are written for Prometheus. The formulas
here are over all workers and five minutes; dashboards take the chosen workers and an interval that
suits the panel, and rules keep the labels of what they are about. Divisions by nothing give nothing.
`;

/** The page on what is derived from the metrics. */
export function writeFigures(): string {
  const records = new Map(
    Object.values(recordingRules())
      .flat()
      .map(({ record, expr }) => [expr, record]),
  );
  const sections = QUESTIONS.flatMap((question, index) => {
    const figures = FIGURES.filter((figure) => figure.question === index + 1);
    if (figures.length === 0) return [];
    return [
      `## ${index + 1}. ${question}\n`,
      ...figures.map((figure) => describe(figure, records)),
    ];
  });
  return [HEADER, ...sections].join('\n');
}

function describe({ name, meaning, promql }: Derived, records: ReadonlyMap<string, string>) {
  const record = records.get(promql({ range: '5m', by: 'job' }));
  const recorded = record === undefined ? '' : ` Recorded as \`${record}\`.`;
  return `**${name}.** ${meaning}${recorded}\n\n\`\`\`promql\n${promql({ range: '5m' })}\n\`\`\`\n`;
}
