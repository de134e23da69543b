import { type AssembledDashboard, assemble } from '../assemble.js';
import { acceptance } from './acceptance.js';
import { correctness } from './correctness.js';
import { horizon } from './horizon.js';
import { latency } from './latency.js';
import { network } from './network.js';
import { occupancy } from './occupancy.js';
import { outputRate } from './output-rate.js';
import { overlap } from './overlap.js';
import { waste } from './waste.js';

/** The nine questions, in their order. */
export function pipelineDashboard(): AssembledDashboard {
  return assemble({
    uid: 'llama-stage-pipeline',
    title: 'Verify windows / Pipeline',
    description:
      'Speculative decoding over a chain of stages: a row for each question that whoever runs one asks. Metrics have the names that Prometheus gives them over OTLP.',
    rows: [
      outputRate(),
      latency(),
      occupancy(),
      overlap(),
      network(),
      waste(),
      acceptance(),
      horizon(),
      correctness(),
    ],
  });
}
