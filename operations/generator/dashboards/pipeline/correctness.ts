import {
  ATTR_ERROR_TYPE,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED,
} from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import {
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS,
} from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { rate } from '../../promql.js';
import type { Row } from '../assemble.js';
import { shareOf } from '../expressions.js';
import { colored, dashedThresholds, shares, text, thresholds, timeseries } from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { WINDOWS } from '../variables.js';

/** Question 9. */
export function correctness(): Row {
  return {
    title: QUESTIONS[8],
    panels: [howToCheck().span(8), errors().span(8), unverified().span(8)],
  };
}

function howToCheck() {
  return text(
    {
      title: 'How to check it',
      read: 'Why there is no figure, and what to do instead.',
      act: 'An output that differs from the control is a fault of the coordinator: the target model alone decides on every token.',
    },
    [
      'No metric knows: telemetry carries no tokens. **Run the same requests at depth 1**, with the same seed and greedy sampling, and compare the outputs token for token. They have to be equal.',
      '',
      'What stands in for it between two comparisons: a refused call means that the coordinator and its chain disagree, and a window that nobody verified means that its tokens were taken on trust, or that it had none.',
    ].join('\n'),
  );
}

function errors() {
  const type = labelName(ATTR_ERROR_TYPE);
  return timeseries(
    {
      title: 'Errors by type',
      read: 'Calls per second that a scheduler refused. A refused call changes nothing, so the output stays right, but none of them should happen: the threshold is just above nothing.',
      act: 'reply_out_of_order, reply_without_window: the transport loses or mixes replies. depth_exceeded, closed, invalid_argument: a fault in the decode loop. id_overflow: window ids have run out.',
    },
    'suffix: errors/s',
    [[`{{${type}}}`, rate(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS, { ...WINDOWS, by: type })]],
  )
    .thresholds(thresholds('green', [0.001, 'red']))
    .thresholdsStyle(dashedThresholds())
    .links([generationTraces()]);
}

function unverified() {
  const verdict = labelName(ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT);
  const value = LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED;
  return colored(
    shares(
      {
        title: 'Unverified windows',
        read: 'Windows that a reply retired without a finding, as a share of those that completed: they carried no candidate, or the coordinator did not report what it found. A steady share is the start of requests, and misses of the horizon.',
        act: 'A share near the whole means that the coordinator reports no outcomes: acceptance and verdicts are then blind.',
      },
      [
        [
          'unverified',
          shareOf(
            rate(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, WINDOWS, {
              match: `${verdict}="${value}"`,
            }),
            rate(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, WINDOWS),
          ),
        ],
      ],
    ),
    { unverified: 'text' },
  );
}
