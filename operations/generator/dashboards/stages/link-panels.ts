import {
  computePerWindow,
  hiddenShare,
  linksAndQueuesPerWindow,
  writePerCompute,
  writesPerWindow,
} from '../expressions.js';
import { colored, shares, stat, timeseries } from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { STAGE, STAGES, WINDOWS } from '../variables.js';

const HIDDEN =
  'Of the time that windows spent on their way after stage 0, the share in which another window of the same generation was on its way too. What is left over is exposed: the generation had nothing else to wait for. Depth 1 hides nothing; a full queue of depth n hides up to (n - 1) / n.';

export function hiddenWait() {
  return colored(
    shares(
      {
        title: 'Waiting that is hidden',
        read: `${HIDDEN} It contains the compute of the later stages; what the links alone took, and what was computed meanwhile, is in the traces.`,
        act: 'Low with a greater depth: the queue was not full; see the time at each occupancy level. High with a poor output rate: what fills the time is stale.',
      },
      [['hidden', hiddenShare(WINDOWS)]],
    ),
    { hidden: 'green' },
  ).links([generationTraces()]);
}

export function hiddenNow() {
  return stat(
    {
      title: 'Waiting that is hidden',
      read: HIDDEN,
      act: 'Low with a greater depth: the queue was not full; see the dashboard of the pipeline.',
    },
    'percentunit',
    ['hidden', hiddenShare(WINDOWS)],
  ).decimals(0);
}

export function windowJourney() {
  return colored(
    timeseries(
      {
        title: 'The way of a window',
        read: 'Where the mean time of a window goes, from the compute of stage 0 to its reply: compute of all stages, writes, and the rest of what stage 0 waited, which is links and queues before stages. A window takes all of it; a pipeline pays only for what it cannot hide.',
        act: 'Links and queues that grow with the depth are queues: the slowest stage is at its limit. If they are large at depth 1 too, they are links, and depth is the remedy.',
      },
      's',
      [
        ['compute', computePerWindow(WINDOWS)],
        ['forward write', writesPerWindow(WINDOWS)],
        ['links and queues', linksAndQueuesPerWindow(WINDOWS)],
      ],
    ),
    { compute: 'green', 'forward write': 'yellow', 'links and queues': 'orange' },
  ).links([generationTraces()]);
}

export function writeAgainstCompute() {
  return timeseries(
    {
      title: 'Forward write, against compute',
      read: 'Time that a stage writes for each second that it computes. A write is hidden while the next stage is busy, and costs the stage its own time where it does not compute meanwhile.',
      act: 'Near 100 % or above, a stage spends as long on sending as on computing: a faster link, or smaller activations.',
    },
    'percentunit',
    [[`stage {{${STAGE}}}`, writePerCompute(STAGES)]],
  )
    .decimals(1)
    .fillOpacity(0)
    .links([generationTraces()]);
}
