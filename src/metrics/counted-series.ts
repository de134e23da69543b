import { COUNTED } from '../../semconv/counted.js';

export type { ReadableCounts, Series } from '../../semconv/counted.js';

/** Series of counters: what a scheduler counted stays in the total after its end. */
export const COUNTERS = COUNTED.filter(({ instrument }) => instrument.kind === 'counter');

/** Series of up-down counters: only live schedulers are in them. */
export const GAUGES = COUNTED.filter(({ instrument }) => instrument.kind === 'updowncounter');
