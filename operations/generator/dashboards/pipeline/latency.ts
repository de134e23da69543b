import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import * as I from '../../../../semconv/instruments.js';
import type { Row } from '../assemble.js';
import { current } from '../expressions.js';
import { dashedThresholds, heatmap, percentiles, thresholds, timeseries } from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { WINDOWS } from '../variables.js';

/** Question 2. */
export function latency(): Row {
  return {
    title: QUESTIONS[1],
    panels: [
      firstToken().span(8),
      perOutputToken().span(8),
      wholeRequest().span(8),
      windowPercentiles().span(8),
      windowHeatmap().span(8),
      oldestWindow().span(8),
    ],
  };
}

function firstToken() {
  return percentiles(
    {
      title: 'Time to first token',
      read: 'From the arrival of a request to its first token. Depth hardly changes it: no window is in flight before the prompt is computed. There is no threshold, as the prompt and the model set it.',
      act: 'Where it grows with the load, requests queue for the first stage; see how busy the stages are.',
    },
    's',
    I.INSTRUMENT_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
    WINDOWS,
  ).links([generationTraces()]);
}

function perOutputToken() {
  return percentiles(
    {
      title: 'Time per output token',
      read: 'Mean time from one token to the next, of each request after its first token. It is what pipelining shortens: hold it against the same percentile at depth 1. There is no threshold, as the model and the chain set it.',
      act: 'p99 far above p50 means that some requests speculate badly: look at the acceptance, and at the traces of slow ones.',
    },
    's',
    I.INSTRUMENT_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
    WINDOWS,
  ).links([generationTraces()]);
}

function wholeRequest() {
  return percentiles(
    {
      title: 'Request duration',
      read: 'From the arrival of a request to its last token. It depends on how many tokens were asked for; compare like with like.',
      act: 'If it grew and the time per output token did not, the answers became longer, or the first token later.',
    },
    's',
    I.INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION,
    WINDOWS,
  ).links([generationTraces()]);
}

function windowPercentiles() {
  return percentiles(
    {
      title: 'Window duration',
      read: 'From the admission of a window to its reply, stale ones included: the round trip that pipelining has to hide. It may grow with the depth, as windows queue for the slowest stage; what counts is the time per output token.',
      act: 'If it grows as fast as the depth does, the chain is at its limit, and more depth only lengthens the queue. A sudden step is a slow link or stage: see the dashboard of the stages.',
    },
    's',
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
    WINDOWS,
  ).links([generationTraces()]);
}

function windowHeatmap() {
  return heatmap(
    {
      title: 'Window duration, spread',
      read: 'Windows per second in each range of durations; the darker, the more. One band is a healthy chain.',
      act: 'Two bands are two kinds of ways: a slow worker among fast ones, or replies over the reverse fallback. Choose single instances to tell which.',
    },
    's',
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
    WINDOWS,
  ).links([generationTraces()]);
}

function oldestWindow() {
  return timeseries(
    {
      title: 'Oldest window in flight',
      read: 'Age of the window that waits longest for its reply, over all workers, as the last collection found it. The threshold is at one minute: no window takes that long, so its reply is lost.',
      act: 'A line that rises second by second is a generation that stands still, however well the others do: the alert on it names the instance, and its trace the stage.',
    },
    's',
    [['oldest', current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE, WINDOWS, 'max')]],
  )
    .thresholds(thresholds('green', [60, 'red']))
    .thresholdsStyle(dashedThresholds())
    .links([generationTraces()]);
}
