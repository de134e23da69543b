import {
  BigValueTextMode,
  TableSortByFieldStateBuilder,
} from '@grafana/grafana-foundation-sdk/common';
import * as I from '../../../../semconv/instruments.js';
import { SPAN_LLAMA_STAGE_STAGE_COMPUTE } from '../../../../semconv/spans.js';
import { mean } from '../../promql.js';
import {
  busyShare,
  meanCompute,
  slowestStageLimit,
  slowestWorkers,
  stagesComputing,
  windowRate,
  workers,
} from '../expressions.js';
import { colored, dashedThresholds, stat, table, thresholds, timeseries } from '../panels.js';
import { generationTraces, traces } from '../trace-link.js';
import { STAGE, STAGES, variable } from '../variables.js';

export function computingAtOnce() {
  return colored(
    timeseries(
      {
        title: 'Stages computing at once',
        read: 'How many stages of a chain computed at the same moment, on average, and how many there are. Serial decoding stays at one or below. The threshold at 1 is where it is certain that stages were busy at the same time; below it, waiting for requests or links hides the overlap. Several generations at a time raise it too.',
        act: 'Low with many generations under way: the queue is not full, or the links are long. Compare it at depth 1 to see what pipelining adds.',
      },
      'suffix: stages',
      [
        ['computing', stagesComputing(STAGES)],
        ['stages', `count(${workers(STAGES)})`],
      ],
    )
      .decimals(1)
      .thresholds(thresholds('orange', [1, 'green']))
      .thresholdsStyle(dashedThresholds()),
    { computing: 'green', stages: 'text' },
  ).links([generationTraces()]);
}

export function busyByStage() {
  return timeseries(
    {
      title: 'Time that each stage computes',
      read: 'Share of its time that a worker of the stage computes, on average. The highest line is the bottleneck. The threshold is at 90 %: a stage above it has hardly any time to give, so more depth cannot help. Above 100 % the workers compute several windows at once.',
      act: 'One line far above the others: give that stage fewer layers, or another worker. All of them low under load: the chain waits for its links or its guesses.',
    },
    'percentunit',
    [[`stage {{${STAGE}}}`, busyShare(STAGES)]],
  )
    .decimals(0)
    .axisSoftMax(1)
    .fillOpacity(0)
    .thresholds(thresholds('green', [0.9, 'orange']))
    .thresholdsStyle(dashedThresholds())
    .links([generationTraces()]);
}

export function bottleneckStage() {
  return stat(
    {
      title: 'Bottleneck stage',
      read: 'The stage that computes for the largest share of its time, and that share. From 90 % on, where it turns orange, it is the limit of the chain.',
      act: 'Below that, the chain waits for something else: see the link, and the queue on the dashboard of the pipeline.',
    },
    'percentunit',
    [`stage {{${STAGE}}}`, `topk(1, ${busyShare(STAGES)})`],
  )
    .decimals(0)
    .textMode(BigValueTextMode.ValueAndName)
    .thresholds(thresholds('green', [0.9, 'orange']));
}

export function windowsAgainstLimit() {
  return colored(
    timeseries(
      {
        title: 'Windows, against what the slowest stage allows',
        read: 'Windows per second that went through the chains, and those that the slowest stage could compute if it never waited: its workers, over its mean compute. The useful depth is the smallest at which the lines come near.',
        act: 'Far apart under load: try more depth, if the queue is full. Above the limit: workers compute several windows at once, and the limit is too low by as much.',
      },
      'suffix: windows/s',
      [
        ['computed', `max(${windowRate(STAGES)})`],
        ['limit', slowestStageLimit(STAGES)],
      ],
    ),
    { computed: 'green', limit: 'text' },
  );
}

export function stageTable() {
  const each = { ...STAGES, by: STAGE };
  return table(
    {
      title: 'Stages, the busiest first',
      read: 'What one window takes in each stage on average, as it is now. Where a stage does not write or wait, its cell is empty.',
      act: 'A stage with more compute than the others sets the pace of all: even out the layers.',
    },
    { [STAGE]: 'Stage' },
    [
      ['Busy', 'percentunit', busyShare(STAGES)],
      ['Workers', 'none', workers(STAGES)],
      ['Compute', 's', meanCompute(STAGES)],
      ['Forward write', 's', mean(I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION, each)],
      ['Downstream wait', 's', mean(I.INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION, each)],
    ],
  ).sortBy([new TableSortByFieldStateBuilder().displayName('Busy').desc(true)]);
}

export function slowWorkers() {
  const panel = table(
    {
      title: 'The ten slowest workers',
      read: 'Processes by the mean compute of a window, as it is now. Workers of the same stage should be alike. A job leads to its traces of this time.',
      act: 'A worker slower than others of its stage has a slower or a shared machine: take it out of the chain, and look at its traces.',
    },
    { [STAGE]: 'Stage', job: 'Job', instance: 'Instance' },
    [['Compute', 's', slowestWorkers(10, STAGES)]],
  );
  const toTraces = traces(
    'Traces of this worker',
    variable('__data.fields.Job'),
    SPAN_LLAMA_STAGE_STAGE_COMPUTE,
  ).build();
  return panel
    .sortBy([new TableSortByFieldStateBuilder().displayName('Compute').desc(true)])
    .overrideByName('Job', [{ id: 'links', value: [toTraces] }]);
}
