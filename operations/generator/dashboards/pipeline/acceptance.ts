import * as A from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import * as I from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { acceptanceRate, mean, rate, shareAbove } from '../../promql.js';
import type { Row } from '../assemble.js';
import { sharesBy } from '../expressions.js';
import {
  colored,
  dashedThresholds,
  type Line,
  shades,
  shares,
  stackedShares,
  thresholds,
  timeseries,
} from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { WINDOWS } from '../variables.js';

/** Question 7. */
export function acceptance(): Row {
  return {
    title: QUESTIONS[6],
    panels: [
      rateOfAcceptance().span(8),
      acceptedLength().span(8),
      byPosition().span(8),
      verdicts(),
      tokens(),
    ],
  };
}

function rateOfAcceptance() {
  return colored(
    shares(
      {
        title: 'Acceptance rate',
        read: 'Accepted candidates as a share of those proposed. Stale windows count in neither. The threshold is at one half: below it most candidates are computed for nothing.',
        act: 'It falls with text that the guesser has not seen. If it fell for all requests at once, the guesser or the model changed; if for some, narrower windows waste less.',
      },
      [['accepted', acceptanceRate(WINDOWS)]],
    )
      .thresholds(thresholds('orange', [0.5, 'green']))
      .thresholdsStyle(dashedThresholds()),
    { accepted: 'green' },
  );
}

function acceptedLength() {
  return timeseries(
    {
      title: 'Mean accepted length',
      read: 'Accepted candidates of a verified window, on average. Together with the token of the target itself, it is what one round trip yields.',
      act: 'Near the width of a window: wider windows could carry more. Far below it: narrower ones would waste less compute, and come back sooner.',
    },
    'suffix: tokens',
    [['accepted length', mean(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH, WINDOWS)]],
  ).decimals(1);
}

/** Positions that have a bucket of their own, and so an exact share. */
function positions(): number[] {
  const { explicitBucketBoundaries: boundaries } =
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH.options.advice;
  return boundaries.filter((boundary, index) => boundary === index).map((boundary) => boundary + 1);
}

function byPosition() {
  const lines = positions().map(
    (position): Line => [
      `candidate ${position}`,
      shareAbove(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH, position - 1, WINDOWS),
    ],
  );
  return shares(
    {
      title: 'Acceptance by position',
      read: 'Share of the verified windows in which the candidate at that position, and with it all before, was accepted. The lines can only lie below one another; those past the width of the windows are at nothing.',
      act: 'The first line that drops far below the one before it is where a window should end. If the first candidate is low already, the guesser starts wrong: a wider window cannot help.',
    },
    lines,
  )
    .colorScheme(shades('dark-blue'))
    .fillOpacity(0);
}

function verdicts() {
  const verdict = labelName(A.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT);
  return colored(
    stackedShares(
      {
        title: 'Verdicts',
        read: 'What the replies said, as shares of all windows that completed: the guess was right, right in part, wrong, or on a branch that had diverged before. Unverified ones had nothing to verify, or the coordinator did not say what it found.',
        act: 'More rejects and partial accepts are worse guesses; more stale ones with as many rejects are too much depth. Unverified ones beyond the start of requests are windows sent for single tokens.',
      },
      [
        [
          `{{${verdict}}}`,
          sharesBy(verdict, I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, WINDOWS),
        ],
      ],
    ),
    {
      [A.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT]: 'dark-green',
      [A.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT]: 'light-green',
      [A.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT]: 'orange',
      [A.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE]: 'semi-dark-red',
      [A.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED]: 'text',
    },
  ).links([generationTraces()]);
}

function tokens() {
  return colored(
    timeseries(
      {
        title: 'Candidates proposed and accepted',
        read: 'Tokens per second, over all workers; what lies between the lines was computed and thrown away. Stale windows are not in it.',
        act: 'Fewer proposed ones with as many windows are shorter guesses: see the horizon.',
      },
      'suffix: tokens/s',
      [
        ['proposed', rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS, WINDOWS)],
        ['accepted', rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS, WINDOWS)],
      ],
    ),
    { proposed: 'text', accepted: 'green' },
  );
}
