import type { Attributes, Meter } from '@opentelemetry/api';
import {
  type HistogramInstrument,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION,
} from '../../semconv/instruments.js';
import type { VerifyWindowStats } from '../scheduler/stats.js';

/** The histograms, which unlike the counters are recorded as things happen. */
export const HISTOGRAMS = {
  occupancy: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY,
  duration: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  acceptedLength: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
  averageInFlight: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT,
  parallelFraction: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION,
  fullFraction: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION,
  maxInFlight: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT,
} satisfies Record<string, HistogramInstrument>;

export type HistogramKey = keyof typeof HISTOGRAMS;

/** One histogram of one attribute set. */
export interface HistogramRecorder {
  /** Takes a value, in the unit of the instrument. */
  record(value: number): void;
}

/** The histograms of one attribute set. */
export type WindowHistograms = Readonly<Record<HistogramKey, HistogramRecorder>>;

/** A way to record the histograms. */
export interface HistogramBackend {
  /** The histograms of an attribute set; called once for each. */
  bind(attributes: Attributes): WindowHistograms;
  /** The bridge has moved to another meter. */
  useMeter(meter: Meter): void;
}

/** One of something for each histogram. */
export function forEachHistogram<Value>(
  make: (instrument: HistogramInstrument, key: HistogramKey) => Value,
): Record<HistogramKey, Value> {
  const entries = Object.entries(HISTOGRAMS) as [HistogramKey, HistogramInstrument][];
  return Object.fromEntries(
    entries.map(([key, instrument]) => [key, make(instrument, key)]),
  ) as Record<HistogramKey, Value>;
}

/** Records what is known of a generation once it has ended. */
export function recordGeneration(histograms: WindowHistograms, stats: VerifyWindowStats): void {
  histograms.averageInFlight.record(stats.occupancyAverageInFlight);
  histograms.parallelFraction.record(stats.occupancyParallelFraction);
  histograms.fullFraction.record(stats.occupancyFullFraction);
  histograms.maxInFlight.record(stats.maxInFlight);
}
