import type { Attributes, BatchObservableResult, Observable } from '@opentelemetry/api';
import {
  ATTR_ERROR_TYPE,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL,
} from '../../semconv/attributes.js';
import {
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME,
  type Instrument,
} from '../../semconv/instruments.js';
import type { VerifyWindowErrorCode } from '../scheduler/error.js';
import type { VerifyWindowStats } from '../scheduler/stats.js';
import type { Tally } from '../scheduler/tally.js';
import { countsOf } from './finished-generation.js';
import { OccupancyTimes } from './occupancy-times.js';
import { COUNTERS, type Counts, GAUGES, type Signal } from './signals.js';

/** A counter within an attribute set; a number is an occupancy level. */
type Series = Signal | Instrument | number;

/** Finds the observable that stands for an instrument on the present meter. */
export type FindObservable = (instrument: Instrument) => Observable;

/**
 * The schedulers that share one set of attributes: those that live, and the totals of those that
 * ended. It knows schedulers by their tallies alone, and so keeps none of them alive.
 */
export class AttributeSet {
  readonly attributes: Attributes;

  readonly #live = new Set<Tally>();
  /** By index of {@link COUNTERS}: what the schedulers counted that ended. */
  readonly #ended: number[] = COUNTERS.map(() => 0);
  readonly #endedOccupancy = new OccupancyTimes();
  readonly #counterAttributes: readonly Attributes[];
  readonly #levelAttributes: Attributes[] = [];
  /**
   * The largest value reported of each series. Sums of doubles depend on their order, which
   * changes when a scheduler ends: without this, a counter could fall by its last digit, and a
   * backend would take that for a restart.
   */
  readonly #reported = new Map<Series, number>();

  constructor(attributes: Attributes) {
    this.attributes = attributes;
    this.#counterAttributes = COUNTERS.map((signal) => ({ ...attributes, ...signal.attributes }));
  }

  /** Whether the scheduler of this tally was attached and has not been folded. */
  isLive(tally: Tally): boolean {
    return this.#live.has(tally);
  }

  attach(tally: Tally): void {
    this.#live.add(tally);
  }

  /** Moves a scheduler that ended into the totals. */
  fold(tally: Tally): void {
    this.#live.delete(tally);
    addTo(this.#ended, COUNTERS, tally);
    for (let level = 0; level <= tally.depth; level++) {
      this.#endedOccupancy.add(level, tally.occupancyMs(level), tally.depth);
    }
  }

  /** Adds a generation of which only the statistics are known. */
  addGeneration(stats: VerifyWindowStats): void {
    addTo(this.#ended, COUNTERS, countsOf(stats));
    stats.occupancyMsByDepth.forEach((ms, level) => {
      this.#endedOccupancy.add(level, ms, stats.depth);
    });
  }

  /** Counts a call that was refused after its scheduler had been folded. */
  addLateError(code: VerifyWindowErrorCode): void {
    const index = COUNTERS.findIndex(
      ({ instrument, attributes }) =>
        instrument === INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS &&
        attributes?.[ATTR_ERROR_TYPE] === code,
    );
    this.#ended[index] = (this.#ended[index] ?? 0) + 1;
  }

  /**
   * Reports every series of this attribute set, from one reading of each live scheduler.
   *
   * @param pendingMs time since a scheduler's last transition.
   */
  observe(
    result: BatchObservableResult,
    find: FindObservable,
    pendingMs: (tally: Tally) => number,
  ) {
    const counters = [...this.#ended];
    const gauges = GAUGES.map(() => 0);
    const occupancy = this.#endedOccupancy.copy();
    for (const tally of this.#live) {
      addTo(counters, COUNTERS, tally);
      addTo(gauges, GAUGES, tally);
      for (let level = 0; level <= tally.depth; level++) {
        occupancy.add(level, tally.occupancyMs(level), tally.depth);
      }
      occupancy.add(tally.inFlight, pendingMs(tally), tally.depth);
    }

    COUNTERS.forEach((signal, index) => {
      const value = this.#rising(signal, counters[index] ?? 0);
      result.observe(find(signal.instrument), value, this.#counterAttributes[index]);
    });
    GAUGES.forEach(({ instrument }, index) => {
      result.observe(find(instrument), gauges[index] ?? 0, this.attributes);
    });
    this.#observeOccupancy(result, find, occupancy);
  }

  #observeOccupancy(
    result: BatchObservableResult,
    find: FindObservable,
    { byLevel, parallelMs, fullMs }: OccupancyTimes,
  ): void {
    const byLevelTime = find(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME);
    byLevel.forEach((ms, level) => {
      this.#levelAttributes[level] ??= {
        ...this.attributes,
        [ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL]: level,
      };
      result.observe(byLevelTime, this.#rising(level, ms / 1000), this.#levelAttributes[level]);
    });
    const parallel = INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME;
    result.observe(find(parallel), this.#rising(parallel, parallelMs / 1000), this.attributes);
    const full = INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME;
    result.observe(find(full), this.#rising(full, fullMs / 1000), this.attributes);
  }

  #rising(series: Series, value: number): number {
    const reported = Math.max(value, this.#reported.get(series) ?? 0);
    this.#reported.set(series, reported);
    return reported;
  }
}

function addTo(sums: number[], signals: readonly Signal[], counts: Counts): void {
  signals.forEach((signal, index) => {
    sums[index] = (sums[index] ?? 0) + signal.read(counts);
  });
}
