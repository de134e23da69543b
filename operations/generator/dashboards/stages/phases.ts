import type { HistogramInstrument } from '../../../../semconv/instruments.js';
import { quantile } from '../../promql.js';
import type { Row } from '../assemble.js';
import { type Reading, timeseries } from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { STAGE, STAGES } from '../variables.js';

const PERCENTILES = [
  [0.5, 'p50', 'Half of the windows took no longer.'],
  [0.95, 'p95', 'One window in twenty took longer.'],
  [0.99, 'p99', 'One window in a hundred took longer.'],
] as const;

/** Percentiles of one phase, with a line for each stage. */
export function phaseRow(
  phase: string,
  instrument: HistogramInstrument,
  { read, act }: Omit<Reading, 'title'>,
): Row {
  const title = `${phase} of each stage`;
  const panels = PERCENTILES.map(([q, name, meaning]) =>
    timeseries(
      {
        title: `${phase}, ${name}`,
        read: `${read} ${meaning} There is no threshold, as the model and the machines set it.`,
        act,
      },
      's',
      [[`stage {{${STAGE}}}`, quantile(q, instrument, { ...STAGES, by: STAGE })]],
    )
      .span(8)
      .fillOpacity(0)
      .links([generationTraces()]),
  );
  return { title, panels };
}
