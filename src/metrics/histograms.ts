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
export type Histograms = ReturnType<typeof createHistograms>;

export function createHistograms(meter: Meter) {
  const create = ({ name, options }: HistogramInstrument) => meter.createHistogram(name, options);
  return {
    occupancy: create(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY),
    duration: create(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION),
    acceptedLength: create(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH),
    averageInFlight: create(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT),
    parallelFraction: create(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION),
    fullFraction: create(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION),
    maxInFlight: create(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT),
  };
}

/** Records what is known of a generation once it has ended. */
export function recordGeneration(
  histograms: Histograms,
  stats: VerifyWindowStats,
  attributes: Attributes,
): void {
  histograms.averageInFlight.record(stats.occupancyAverageInFlight, attributes);
  histograms.parallelFraction.record(stats.occupancyParallelFraction, attributes);
  histograms.fullFraction.record(stats.occupancyFullFraction, attributes);
  histograms.maxInFlight.record(stats.maxInFlight, attributes);
}
