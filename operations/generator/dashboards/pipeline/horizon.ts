import * as A from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import * as I from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { idleFraction, rate, refillHitRate, share } from '../../promql.js';
import type { Row } from '../assemble.js';
import { colored, dashedThresholds, shares, thresholds, timeseries } from '../panels.js';
import { WINDOWS } from '../variables.js';

const OUTCOME = labelName(A.ATTR_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME);

/** Question 8. */
export function horizon(): Row {
  return {
    title: QUESTIONS[7],
    panels: [hitRate(), attempts(), tokens(), idle()],
  };
}

function hitRate() {
  return colored(
    shares(
      {
        title: 'Refill hit rate',
        read: 'Refills that appended tokens, as a share of the attempts. The threshold is at one half: below it the guess ran short more often than it could be lengthened. Where there was no attempt there is no line.',
        act: 'Misses are requests whose text has no earlier likeness to copy from. If they are the rule, another source of guesses is needed, and depth is of little use.',
      },
      [['hits', refillHitRate(WINDOWS)]],
    )
      .thresholds(thresholds('orange', [0.5, 'green']))
      .thresholdsStyle(dashedThresholds()),
    { hits: 'green' },
  );
}

function attempts() {
  return colored(
    timeseries(
      {
        title: 'Refill attempts',
        read: 'Attempts per second, by whether they found tokens.',
        act: 'Many attempts with many hits are short refills: let each append more. None at all with windows in flight: the coordinator does not refill.',
      },
      'suffix: refills/s',
      [
        [
          `{{${OUTCOME}}}`,
          rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS, { ...WINDOWS, by: OUTCOME }),
        ],
      ],
    ),
    {
      [A.LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_SUCCESS]: 'green',
      [A.LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_MISS]: 'orange',
    },
  );
}

function tokens() {
  const appended = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_TOKENS, WINDOWS);
  const hits = rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILLS, WINDOWS, {
    match: `${OUTCOME}="${A.LLAMA_STAGE_VERIFY_WINDOW_HORIZON_REFILL_OUTCOME_VALUE_SUCCESS}"`,
  });
  return timeseries(
    {
      title: 'Refill tokens',
      read: 'Tokens that refills appended per second, over all workers, and on the right how many a hit appended on average. A hit should carry the windows that are missing: their width, times the depth.',
      act: 'Short hits leave the queue empty soon after: let a refill look further. Far more tokens than candidates proposed are guesses that diverge before they are sent.',
    },
    'suffix: tokens/s',
    [
      ['appended', appended],
      ['each hit', share(appended, hits)],
    ],
  ).overrideByName('each hit', [
    { id: 'unit', value: 'suffix: tokens' },
    { id: 'custom.axisPlacement', value: 'right' },
    { id: 'custom.fillOpacity', value: 0 },
  ]);
}

function idle() {
  return colored(
    shares(
      {
        title: 'Time with nothing in flight',
        read: "Share of the generations' time in which no window was in flight: what a horizon that is not supplied costs in the end. Computing the prompt is in it as well.",
        act: 'With few hits: the guesses run out. With many: the coordinator takes long between a reply and the next window, or the prompts are long.',
      },
      [['idle', idleFraction(WINDOWS)]],
    ),
    { idle: 'semi-dark-red' },
  );
}
