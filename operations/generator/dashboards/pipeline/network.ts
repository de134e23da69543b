import { ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH } from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import { INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS } from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { rate, reverseFallbackFraction } from '../../promql.js';
import type { Row } from '../assemble.js';
import { colored, dashedThresholds, shares, thresholds, timeseries } from '../panels.js';
import { hiddenWait, windowJourney } from '../stages/link-panels.js';
import { WINDOWS } from '../variables.js';

/** Question 5. */
export function network(): Row {
  return {
    title: QUESTIONS[4],
    panels: [windowJourney(), hiddenWait(), returnPaths(), fallback()],
  };
}

const PATH = labelName(ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_PATH);

function returnPaths() {
  return timeseries(
    {
      title: 'Direct-return path',
      read: "Generations begun per second, by how the last stage's predictions come back: over a sink that the upstream opened, as preferred, or over the reverse fallback that the last stage opens.",
      act: 'Generations on the fallback found no sink: see whether the last stage can be reached from the coordinator.',
    },
    'suffix: generations/s',
    [
      [
        `{{${PATH}}}`,
        rate(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURNS, { ...WINDOWS, by: PATH }),
      ],
    ],
  );
}

function fallback() {
  return colored(
    shares(
      {
        title: 'Generations on the reverse fallback',
        read: 'Their share of all generations. The threshold is at 5 %: a fallback now and then is a reconnect, more is a path that does not work.',
        act: 'The table of coordinators has the share of each: if it is all or nothing, a route or a firewall of those is the cause.',
      },
      [['reverse fallback', reverseFallbackFraction(WINDOWS)]],
    )
      .thresholds(thresholds('green', [0.05, 'orange']))
      .thresholdsStyle(dashedThresholds()),
    { 'reverse fallback': 'orange' },
  );
}
