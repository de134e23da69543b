import * as A from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import * as I from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { rate, share, staleFraction } from '../../promql.js';
import type { Row } from '../assemble.js';
import { generationsUnderWay, STAGE_0, staleShare } from '../expressions.js';
import { colored, dashedThresholds, shares, thresholds, timeseries } from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { WINDOWS } from '../variables.js';

/** Question 6. */
export function waste(): Row {
  return {
    title: QUESTIONS[5],
    panels: [
      staleWindows().span(8),
      staleParts().span(8),
      staleShares().span(8),
      divergences(),
      dropped(),
    ],
  };
}

function staleWindows() {
  return colored(
    shares(
      {
        title: 'Stale windows',
        read: 'Stale windows as a share of those opened. Some are the price of speculation. The threshold is at one half: from there on more windows are thrown away than kept, and each costs every stage its compute.',
        act: 'Lower the depth: what is in flight behind a divergence is lost, so less in flight is less lost. If the acceptance fell too, the cause is the guesses.',
      },
      [['stale', staleFraction(WINDOWS)]],
    )
      .thresholds(thresholds('green', [0.5, 'red']))
      .thresholdsStyle(dashedThresholds()),
    { stale: 'red' },
  ).links([generationTraces()]);
}

function staleParts() {
  return timeseries(
    {
      title: 'Stale work, by part',
      read: 'Seconds that stale windows took in each second, over all workers. The whole verification contains the compute, the writes and the waiting; the drain is what generations waited for stale replies before they could go on.',
      act: 'Compute is lost to other generations; drain is lost to the generation itself. A large drain with little compute is a long way, not a busy one: a smaller depth shortens it.',
    },
    's',
    [
      ['drain', rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DRAIN_TIME, WINDOWS)],
      [
        'stage 0 compute',
        rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_STAGE0_COMPUTE_TIME, WINDOWS),
      ],
      [
        'forward write',
        rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_FORWARD_WRITE_TIME, WINDOWS),
      ],
      [
        'downstream wait',
        rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DOWNSTREAM_WAIT_TIME, WINDOWS),
      ],
      [
        'whole verification',
        rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_VERIFY_TIME, WINDOWS),
      ],
    ],
  );
}

function staleShares() {
  return shares(
    {
      title: 'Stale work, as a share of all',
      read: "Each part of the stale work as a share of that part of all work: compute, writes and waiting of stage 0, the verification of all windows; for the drain, of the generations' time. The threshold is at one half.",
      act: 'As for the stale windows: lower the depth, or better the guesses. A share of the compute far above the share of windows means that the large windows are the stale ones.',
    },
    [
      [
        'drain',
        share(
          rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DRAIN_TIME, WINDOWS),
          generationsUnderWay(WINDOWS),
        ),
      ],
      [
        'stage 0 compute',
        staleShare(
          I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_STAGE0_COMPUTE_TIME,
          I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION,
          WINDOWS,
          STAGE_0,
        ),
      ],
      [
        'forward write',
        staleShare(
          I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_FORWARD_WRITE_TIME,
          I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
          WINDOWS,
          STAGE_0,
        ),
      ],
      [
        'downstream wait',
        staleShare(
          I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DOWNSTREAM_WAIT_TIME,
          I.INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
          WINDOWS,
          STAGE_0,
        ),
      ],
      [
        'whole verification',
        staleShare(
          I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_VERIFY_TIME,
          I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
          WINDOWS,
        ),
      ],
    ],
  )
    .thresholds(thresholds('green', [0.5, 'red']))
    .thresholdsStyle(dashedThresholds());
}

function divergences() {
  const late = `${labelName(A.ATTR_ERROR_TYPE)}="${A.ERROR_TYPE_VALUE_REPLY_STALE}"`;
  return timeseries(
    {
      title: 'Divergences, and what they left',
      read: 'Recovery epochs begun per second, the windows that they marked stale, and the stale windows that drained. Marked over begun is what one divergence costs in windows, at most the depth less one. Late replies came after their window had been discarded: they are refused, and cost no more than the stale window did.',
      act: 'Marked and discarded belong together: if the discarded ones stay behind, replies are lost on the way. Many epochs with few marked windows are short guesses, not deep ones.',
    },
    'suffix: /s',
    [
      ['recovery epochs', rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCHS, WINDOWS)],
      ['windows marked', rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED, WINDOWS)],
      ['windows discarded', rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_STALE_DISCARDED, WINDOWS)],
      [
        'late replies',
        rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS, WINDOWS, { match: late }),
      ],
    ],
  );
}

function dropped() {
  const reason = labelName(A.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON);
  return timeseries(
    {
      title: 'Windows dropped without a reply',
      read: 'Per second, by the reason: stale, where the coordinator discards instead of draining; closed, where a generation ended with windows in flight.',
      act: 'Closed ones are requests that were cancelled or failed. Many of them, with few failed requests, mean that generations end before their windows do, and leave the stages work for nobody.',
    },
    'suffix: windows/s',
    [
      [
        `{{${reason}}}`,
        rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DROPPED, { ...WINDOWS, by: reason }),
      ],
    ],
  );
}
