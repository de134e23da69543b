import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import type { Row } from '../assemble.js';
import { text } from '../panels.js';
import { busyByStage, computingAtOnce } from '../stages/compute-panels.js';
import { generationTraces } from '../trace-link.js';

/** Question 4. */
export function overlap(): Row {
  return {
    title: QUESTIONS[3],
    panels: [computingAtOnce().span(9), busyByStage().span(9), onlyTraces().span(6)],
  };
}

function onlyTraces() {
  return text(
    {
      title: 'What only a trace answers',
      read: 'How far the metrics go, and where the traces take over.',
      act: 'Follow the link of this panel to the generations of this time.',
    },
    [
      'Metrics know **how much** each stage computed, not **when**: a mean above one stage proves that some computed at the same time, and a mean below one leaves it open.',
      '',
      'A trace shows it. Under the span of a generation, look for compute spans of different stages that lie above one another: those windows were under way at the same time. In serial decoding they form a staircase.',
    ].join('\n'),
  ).links([generationTraces()]);
}
