import { ATTR_LLAMA_STAGE_TELEMETRY_PROBLEM } from '../../../../semconv/attributes.js';
import { INSTRUMENT_LLAMA_STAGE_TELEMETRY_PROBLEMS } from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { current, windowRate, workers } from '../expressions.js';
import { stat, timeseries } from '../panels.js';
import { STAGE, STAGES, WINDOWS } from '../variables.js';

export function workersUp() {
  return stat(
    {
      title: 'Workers up',
      read: 'Processes of stages that reported within the last few exports. One that has not seen a window yet is not counted.',
      act: 'Fewer than were started: look for the missing stage in the panel below, and at its log.',
    },
    'short',
    ['workers', `sum(${workers(STAGES)})`],
  );
}

export function stageCount() {
  return stat(
    {
      title: 'Stages',
      read: 'Places in the chain for which a worker reported.',
      act: 'A chain with a place missing answers nothing: windows stay in flight.',
    },
    'short',
    ['stages', `count(${workers(STAGES)})`],
  );
}

export function workersByStage() {
  return timeseries(
    {
      title: 'Workers up, by stage',
      read: 'Processes that report, for each place in the chain. With chains side by side, each place should have as many.',
      act: 'A step down is a process that ended or lost its exporter. A stage with fewer workers than the others holds all chains up.',
    },
    'short',
    [[`stage {{${STAGE}}}`, workers(STAGES)]],
  )
    .decimals(0)
    .fillOpacity(0);
}

export function windowsByStage() {
  return timeseries(
    {
      title: 'Windows computed, by stage',
      read: 'Windows per second, over all workers of the stage. Every window passes every stage, so the lines lie on one another.',
      act: 'A line below that of the stage before it: windows are lost or pile up between the two.',
    },
    'suffix: windows/s',
    [[`stage {{${STAGE}}}`, windowRate(STAGES)]],
  ).fillOpacity(0);
}

export function telemetryProblems() {
  const problem = labelName(ATTR_LLAMA_STAGE_TELEMETRY_PROBLEM);
  return timeseries(
    {
      title: 'Troubles of the telemetry itself',
      read: 'What the telemetry could not count or tell since the workers started, by the kind of trouble. It is a count and no rate, so that the very first one shows. Nothing here means that the other panels are complete.',
      act: 'overflow: an attribute has too many values. dropped_attribute: the host gives one that is none. forgotten_scheduler: close schedulers. failure: the log of the OpenTelemetry API has the error.',
    },
    'short',
    [
      [
        `{{${problem}}}`,
        current(INSTRUMENT_LLAMA_STAGE_TELEMETRY_PROBLEMS, { ...WINDOWS, by: problem }),
      ],
    ],
  );
}
