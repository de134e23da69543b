import * as I from '../../../../semconv/instruments.js';
import { type AssembledDashboard, assemble } from '../assemble.js';
import {
  bottleneckStage,
  busyByStage,
  computingAtOnce,
  slowWorkers,
  stageTable,
  windowsAgainstLimit,
} from './compute-panels.js';
import { hiddenNow, hiddenWait, windowJourney, writeAgainstCompute } from './link-panels.js';
import { phaseRow } from './phases.js';
import {
  stageCount,
  telemetryProblems,
  windowsByStage,
  workersByStage,
  workersUp,
} from './worker-panels.js';

/** What each stage does, which one holds the others up, and what the way between them costs. */
export function stagesDashboard(): AssembledDashboard {
  return assemble({
    uid: 'llama-stage-stages',
    title: 'Verify windows / Stages',
    description:
      'The stages of the chain: their workers, their compute, and the way from one to the next. Metrics have the names that Prometheus gives them over OTLP.',
    rows: [
      {
        title: 'Which workers are up?',
        panels: [
          workersUp(),
          stageCount(),
          bottleneckStage(),
          hiddenNow(),
          workersByStage().span(8),
          windowsByStage().span(8),
          telemetryProblems().span(8),
        ],
      },
      {
        title: 'Which stage is the bottleneck?',
        panels: [
          busyByStage(),
          computingAtOnce(),
          windowsAgainstLimit(),
          stageTable(),
          slowWorkers().span(24),
        ],
      },
      {
        title: 'How much of the link is hidden?',
        panels: [hiddenWait().span(8), windowJourney().span(8), writeAgainstCompute().span(8)],
      },
      phaseRow('Compute', I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION, {
        read: 'From the beginning to the end of one window over the layers of the stage, without the time that it waited for its turn.',
        act: 'One stage above the others has too many layers, or a slow machine: move layers away from it. All of them at once: windows became wider, or batches larger.',
      }),
      phaseRow('Forward write', I.INSTRUMENT_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION, {
        read: 'What the stage took to hand one window over to the next one. The last stage writes to no other, and has no line.',
        act: 'Writes that take as long as compute are held up: the next stage does not read, or the link is too narrow for the activations.',
      }),
      phaseRow('Downstream wait', I.INSTRUMENT_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION, {
        read: 'What the stage waited for those after it; for stage 0, from the hand-over to the predictions. A stage that passes windows on and forgets them has no line.',
        act: 'A wait far above the compute of the later stages is links and queues: see how much of it is hidden.',
      }),
    ],
  });
}
