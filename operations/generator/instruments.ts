import * as instruments from '../../semconv/instruments.js';

export type { Instrument } from '../../semconv/instruments.js';

/** Every instrument of the conventions. */
export const INSTRUMENTS: readonly instruments.Instrument[] = Object.values(instruments);
