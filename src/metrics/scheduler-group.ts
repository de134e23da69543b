import type { Attributes } from '@opentelemetry/api';
import { ATTR_ERROR_TYPE } from '../../semconv/attributes.js';
import {
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION,
} from '../../semconv/instruments.js';
import type { AttributeSet } from '../attribute-sets.js';
import type { HistogramBackend, HistogramRecorder } from '../histograms/histogram-backend.js';
import { Counts, type Tally, tallyOf, type WindowVerdict } from '../scheduler/counts.js';
import { internalsOf, type SchedulerInternals } from '../scheduler/discovery.js';
import type { VerifyWindowErrorCode } from '../scheduler/error.js';
import type { VerifyWindowObserver, VerifyWindowScheduler } from '../scheduler/scheduler.js';
import { snapshot, type VerifyWindowStats } from '../scheduler/stats.js';
import type { VerifyWindow, WindowOutcome } from '../scheduler/verify-window.js';
import { COUNTERS, GAUGES, type ReadableCounts, type Series } from './counted-series.js';

/** What the schedulers of a group amount to at one moment. */
export interface Reading {
  /** By index of {@link COUNTERS}. */
  readonly counters: number[];
  /** By index of {@link GAUGES}. */
  readonly gauges: number[];
  readonly occupancy: OccupancyTimes;
}

/** The bridge that a group belongs to, as its groups see it. */
export interface Bridge {
  readonly isEnabled: boolean;
  /** Moves to the present provider, where that has changed. */
  followProvider(): void;
  report(error: unknown): void;
}

/** One live scheduler. It is held weakly, and so is its clock. */
interface Member {
  readonly counts: Counts;
  readonly reference: SchedulerInternals['reference'];
  /** What an owner before has counted already. */
  readonly base: Tally | undefined;
  /** As the last collection saw it. */
  seen: { readonly opened: number; readonly lifetimeMs: number; readonly pendingMs: number };
}

const NEVER_SEEN = { opened: 0, lifetimeMs: 0, pendingMs: 0 };

/** Tells of schedulers that were garbage-collected before they were closed. */
const forgotten = new FinalizationRegistry<{ group: SchedulerGroup; counts: Counts }>(
  ({ group, counts }) => group.foldForgotten(counts),
);

/**
 * The schedulers of one bridge that share one set of attributes: those that live, and the totals of
 * those that ended. It watches them, and keeps none of them alive.
 */
export class SchedulerGroup implements VerifyWindowObserver {
  readonly set: AttributeSet;
  /** Whether a global provider may come at any time. */
  isWaiting = false;

  readonly #bridge: Bridge;
  readonly #live = new Map<Counts, Member>();
  readonly #ended = COUNTERS.map(() => 0);
  /** Of schedulers that ended: the errors that are in the totals. */
  readonly #endedErrors = new WeakMap<Counts, Counts['errors']>();
  readonly #endedOccupancy = new OccupancyTimes();
  #histograms: WindowHistograms;

  constructor(bridge: Bridge, set: AttributeSet, backend: HistogramBackend) {
    this.#bridge = bridge;
    this.set = set;
    this.#histograms = histogramsOf(backend, set.attributes);
  }

  useHistograms(backend: HistogramBackend): void {
    this.#histograms = histogramsOf(backend, this.set.attributes);
  }

  /**
   * Counts a scheduler from now on.
   *
   * @param base what another owner has counted of it already.
   */
  add(scheduler: VerifyWindowScheduler, internals: SchedulerInternals, base?: Tally): void {
    const { counts, reference } = internals;
    this.#live.set(counts, { counts, reference, base, seen: seenBefore(counts, base) });
    if (scheduler.isClosed) {
      this.closed(scheduler);
      return;
    }
    forgotten.register(scheduler, { group: this, counts }, counts);
  }

  /**
   * Counts a scheduler no further, and keeps what it has counted of it.
   *
   * @returns from where its next owner goes on. Windows in flight that no collection has seen yet
   * go with the scheduler: there they are opened, and there they will be retired.
   */
  release(counts: Counts): Tally | undefined {
    const member = this.#live.get(counts);
    if (member === undefined) {
      // One that was closed here is in the totals, with all that it ever counted.
      return this.#endedErrors.has(counts) ? tallyOf(counts) : undefined;
    }
    this.#live.delete(counts);
    forgotten.unregister(counts);
    const moving = Math.min(counts.inFlight, Math.max(0, counts.opened - member.seen.opened));
    const occupancyMs = counts.occupancyMs.with(
      counts.inFlight,
      (counts.occupancyMs[counts.inFlight] ?? 0) + pendingSeen(member),
    );
    const counted: Tally = { ...tallyOf(counts), opened: counts.opened - moving, occupancyMs };
    this.#addEnded(counted, member.base);
    return counted;
  }

  /** Adds a generation of which only the statistics are known. */
  addGeneration(stats: VerifyWindowStats): void {
    this.#addEnded(countsOf(stats), undefined);
    if (this.#bridge.isEnabled) recordGeneration(this.#histograms, stats);
  }

  /** The sums of everything, from one reading of each live scheduler. */
  read(): Reading {
    const counters = [...this.#ended];
    const gauges = GAUGES.map(() => 0);
    const occupancy = this.#endedOccupancy.copy();
    for (const member of this.#live.values()) {
      const { counts, base } = member;
      const pendingMs = see(member);
      addSeries(counters, COUNTERS, counts, base);
      addSeries(gauges, GAUGES, counts, undefined);
      occupancy.addAll(counts, base);
      occupancy.add(counts.inFlight, pendingMs, counts.depth);
    }
    return { counters, gauges, occupancy };
  }

  opened(scheduler: VerifyWindowScheduler): void {
    if (this.isWaiting) this.#bridge.followProvider();
    if (this.#bridge.isEnabled) this.#histograms.occupancy.record(scheduler.inFlight);
  }

  completed(
    _scheduler: VerifyWindowScheduler,
    _window: VerifyWindow,
    verdict: WindowVerdict,
    durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void {
    if (!this.#bridge.isEnabled) return;
    this.#histograms.duration.record(durationMs / 1000);
    if (outcome !== undefined && !outcome.stale && verdict !== 'unverified') {
      this.#histograms.acceptedLength.record(outcome.acceptedTokens);
    }
  }

  refused(scheduler: VerifyWindowScheduler, code: VerifyWindowErrorCode): void {
    const counts = internalsOf(scheduler)?.counts;
    const added = counts && this.#endedErrors.get(counts);
    // While it is live, its counts have the error already.
    if (counts === undefined || added === undefined) return;
    this.#endedErrors.set(counts, counts.errors);
    const index = COUNTERS.findIndex(
      ({ instrument, attributes }) =>
        instrument === INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS &&
        attributes?.[ATTR_ERROR_TYPE] === code,
    );
    this.#ended[index] = (this.#ended[index] ?? 0) + counts.errors[code] - added[code];
  }

  closed(scheduler: VerifyWindowScheduler): void {
    const internals = internalsOf(scheduler);
    const member = internals && this.#live.get(internals.counts);
    if (member === undefined) return;
    forgotten.unregister(member.counts);
    this.#bridge.followProvider();
    this.#fold(member);
    if (this.#bridge.isEnabled && member.base?.isClosed !== true) {
      recordGeneration(this.#histograms, snapshot(member.counts, 0));
    }
  }

  failed(error: unknown): void {
    this.#bridge.report(error);
  }

  /**
   * Ends a scheduler that was garbage-collected, with the time that the last collection saw of it.
   * When its generation ended is not known, so it has no average over its time.
   */
  foldForgotten(counts: Counts): void {
    const member = this.#live.get(counts);
    if (member === undefined) return;
    const { inFlight } = counts;
    counts.occupancyMs[inFlight] = (counts.occupancyMs[inFlight] ?? 0) + pendingSeen(member);
    counts.dropped.closed += inFlight;
    counts.inFlight = 0;
    counts.isClosed = true;
    this.#fold(member);
  }

  #fold({ counts, base }: Member): void {
    this.#live.delete(counts);
    this.#addEnded(counts, base);
    this.#endedErrors.set(counts, counts.errors);
  }

  #addEnded(counts: ReadableCounts & OccupancyCounts, base: Tally | undefined): void {
    addSeries(this.#ended, COUNTERS, counts, base);
    this.#endedOccupancy.addAll(counts, base);
  }
}

/** What collections have seen of a scheduler when it comes from an owner before. */
function seenBefore(counts: Counts, base: Tally | undefined): Member['seen'] {
  if (base === undefined) return NEVER_SEEN;
  const { inFlight, lifetimeMs, occupancyMs } = counts;
  const pendingMs = (base.occupancyMs[inFlight] ?? 0) - (occupancyMs[inFlight] ?? 0);
  return { opened: base.opened, lifetimeMs, pendingMs };
}

/** Reads how long a scheduler has been at its present level, and remembers it. */
function see(member: Member): number {
  const { counts } = member;
  const scheduler = member.reference.deref();
  const pendingMs = internalsOf(scheduler)?.pendingMs ?? pendingSeen(member);
  member.seen = { opened: counts.opened, lifetimeMs: counts.lifetimeMs, pendingMs };
  return pendingMs;
}

/** What the last collection saw, unless the scheduler has moved on since. */
function pendingSeen({ counts, seen }: Member): number {
  return counts.lifetimeMs === seen.lifetimeMs ? seen.pendingMs : 0;
}

function addSeries(
  sums: number[],
  series: readonly Series[],
  counts: ReadableCounts,
  base: Tally | undefined,
): void {
  series.forEach(({ read }, index) => {
    sums[index] = (sums[index] ?? 0) + read(counts) - (base === undefined ? 0 : read(base));
  });
}

type OccupancyCounts = Pick<Tally, 'depth' | 'occupancyMs'>;

/** Time at each occupancy level, added up over schedulers. Milliseconds. */
export class OccupancyTimes {
  readonly byLevel: number[] = [];
  /** Time with two or more in flight. */
  parallelMs = 0;
  /** Time with as many in flight as the scheduler's own depth allows. */
  fullMs = 0;

  add(level: number, ms: number, depth: number): void {
    while (this.byLevel.length <= level) this.byLevel.push(0);
    this.byLevel[level] = (this.byLevel[level] ?? 0) + ms;
    if (level >= 2) this.parallelMs += ms;
    if (level === depth) this.fullMs += ms;
  }

  addAll({ depth, occupancyMs }: OccupancyCounts, base?: Tally): void {
    for (let level = 0; level <= depth; level++) {
      this.add(level, (occupancyMs[level] ?? 0) - (base?.occupancyMs[level] ?? 0), depth);
    }
  }

  addTimes(other: OccupancyTimes): void {
    other.byLevel.forEach((ms, level) => {
      this.byLevel[level] = (this.byLevel[level] ?? 0) + ms;
    });
    this.parallelMs += other.parallelMs;
    this.fullMs += other.fullMs;
  }

  copy(): OccupancyTimes {
    const copy = new OccupancyTimes();
    copy.addTimes(this);
    return copy;
  }
}

/**
 * The counts of a generation of which only the statistics are known. Its windows are all retired,
 * but nobody told by which verdict: they count as `unverified`, and no token is made up for them.
 */
function countsOf(stats: VerifyWindowStats): Tally {
  const { directReturnUpstreamOpened, directReturnReverseFallback } = stats;
  return {
    ...tallyOf(new Counts(stats.depth)),
    ...stats,
    completed: { full_accept: 0, partial_accept: 0, reject: 0, stale: 0, unverified: stats.opened },
    horizonRefills: { success: stats.horizonRefillSuccesses, miss: stats.horizonRefillMisses },
    directReturns: {
      upstream_opened: Number(directReturnUpstreamOpened),
      reverse_fallback: Number(directReturnReverseFallback),
    },
    occupancyMs: stats.occupancyMsByDepth,
  };
}

const HISTOGRAMS = {
  occupancy: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY,
  duration: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION,
  acceptedLength: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_LENGTH,
  averageInFlight: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT,
  parallelFraction: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION,
  fullFraction: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION,
  maxInFlight: INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT,
};

type WindowHistograms = Readonly<Record<keyof typeof HISTOGRAMS, HistogramRecorder>>;

function histogramsOf(backend: HistogramBackend, attributes: Attributes): WindowHistograms {
  return {
    occupancy: backend.recorder(HISTOGRAMS.occupancy, attributes),
    duration: backend.recorder(HISTOGRAMS.duration, attributes),
    acceptedLength: backend.recorder(HISTOGRAMS.acceptedLength, attributes),
    averageInFlight: backend.recorder(HISTOGRAMS.averageInFlight, attributes),
    parallelFraction: backend.recorder(HISTOGRAMS.parallelFraction, attributes),
    fullFraction: backend.recorder(HISTOGRAMS.fullFraction, attributes),
    maxInFlight: backend.recorder(HISTOGRAMS.maxInFlight, attributes),
  };
}

/** Records what is known of a generation once it has ended; one without a window has no averages. */
function recordGeneration(histograms: WindowHistograms, stats: VerifyWindowStats): void {
  if (stats.opened === 0) return;
  histograms.averageInFlight.record(stats.occupancyAverageInFlight);
  histograms.parallelFraction.record(stats.occupancyParallelFraction);
  histograms.fullFraction.record(stats.occupancyFullFraction);
  histograms.maxInFlight.record(stats.maxInFlight);
}
