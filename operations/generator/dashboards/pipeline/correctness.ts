import * as A from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import * as I from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { rate, share } from '../../promql.js';
import type { Row } from '../assemble.js';
import { current } from '../expressions.js';
import { colored, dashedThresholds, shares, text, thresholds, timeseries } from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { WINDOWS } from '../variables.js';

/** Question 9. */
export function correctness(): Row {
  return {
    title: QUESTIONS[8],
    panels: [howToCheck(), comparisons(), errors(), unverified()],
  };
}

function howToCheck() {
  return text(
    {
      title: 'How to check it',
      read: 'Where the figure comes from, and what stands in for it.',
      act: 'An output that differs from the control is a fault of the coordinator: the target model alone decides on every token.',
    },
    [
      'Telemetry carries no tokens, so the host compares. **Run the same requests at depth 1**, with the same seed and greedy sampling, compare the outputs token for token, and report the result with `recordControlComparison`. They have to be equal.',
      '',
      'Between two comparisons: a refused call means that the coordinator and its chain disagree, and a window that nobody verified means that its tokens were taken on trust, or that it had none.',
    ].join('\n'),
  );
}

function comparisons() {
  const result = labelName(A.ATTR_LLAMA_STAGE_GENERATION_CONTROL_RESULT);
  return colored(
    timeseries(
      {
        title: 'Comparisons with the control',
        read: 'Outputs that were compared with those of a serial control since the workers started, by the result. It is a count and no rate, so that the very first one shows.',
        act: 'A single different one is a fault: take the pipeline out of service, and find the generation by the digests of its trace.',
      },
      'short',
      [
        [
          `{{${result}}}`,
          current(I.INSTRUMENT_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS, {
            ...WINDOWS,
            by: result,
          }),
        ],
      ],
    ),
    {
      [A.LLAMA_STAGE_GENERATION_CONTROL_RESULT_VALUE_EQUAL]: 'green',
      [A.LLAMA_STAGE_GENERATION_CONTROL_RESULT_VALUE_DIFFERENT]: 'red',
    },
  ).links([generationTraces()]);
}

function errors() {
  const type = labelName(A.ATTR_ERROR_TYPE);
  return timeseries(
    {
      title: 'Errors by type',
      read: 'Calls per second that a scheduler refused. A refused call changes nothing, so the output stays right, but none of them should happen: the threshold is just above nothing. Late replies to discarded windows are no errors, and stand with the waste.',
      act: 'reply_out_of_order, reply_without_window: the transport loses or mixes replies. depth_exceeded, closed, invalid_argument: a fault in the decode loop. id_overflow: window ids have run out.',
    },
    'suffix: errors/s',
    [
      [
        `{{${type}}}`,
        rate(
          I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS,
          { ...WINDOWS, by: type },
          { match: `${type}!="${A.ERROR_TYPE_VALUE_REPLY_STALE}"` },
        ),
      ],
    ],
  )
    .thresholds(thresholds('green', [0.001, 'red']))
    .thresholdsStyle(dashedThresholds())
    .links([generationTraces()]);
}

function unverified() {
  const verdict = labelName(A.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT);
  const value = A.LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED;
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
          share(
            rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, WINDOWS, {
              match: `${verdict}="${value}"`,
            }),
            rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_COMPLETED, WINDOWS),
          ),
        ],
      ],
    ),
    { unverified: 'text' },
  );
}
