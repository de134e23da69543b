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
import { type Attachment, countingOf } from '../attach.js';
import type { AttributeSet } from '../attribute-sets.js';
import { problems } from '../guard.js';
import type { HistogramBackend, HistogramRecorder } from '../histograms/histogram-backend.js';
import { Counts, type Tally, tallyOf, type WindowVerdict } from '../scheduler/counts.js';
import {
  type Discoverable,
  type PresentTimes,
  READ_NOW,
  type SchedulerInternals,
  SweptSet,
  UNSUBSCRIBE,
} from '../scheduler/discovery.js';
import type { VerifyWindowErrorCode } from '../scheduler/error.js';
import type { ReportedStats } from '../scheduler/response-timings.js';
import type { VerifyWindowObserver, VerifyWindowScheduler } from '../scheduler/scheduler.js';
import { occupancyOf, type VerifyWindowStats } from '../scheduler/stats.js';
import type { VerifyWindow, WindowOutcome } from '../scheduler/verify-window.js';
import { COUNTERS, GAUGES, type ReadableCounts, type Series } from './counted-series.js';

/** What the schedulers of a group amount to at one moment. */
export interface Reading {
  /** By index of {@link COUNTERS}. */
  readonly counters: number[];
  /** By index of {@link GAUGES}. */
  readonly gauges: number[];
  readonly occupancy: OccupancyTimes;
  /** Of the oldest window in flight now. */
  readonly oldestAgeMs: number;
}

/** The bridge that a group belongs to, as its groups see it. */
export interface Bridge {
  readonly isEnabled: boolean;
  /** To which it reports. */
  readonly hub: unknown;
  readonly maxAttributeSets: number;
  /** Moves to the present provider, where that has changed. */
  followProvider(): void;
  report(error: unknown): void;
}

/** What collections have seen of a scheduler. */
interface Seen {
  readonly opened: number;
  readonly lifetimeMs: number;
  readonly pendingMs: number;
}

const NEVER_SEEN: Seen = { opened: 0, lifetimeMs: 0, pendingMs: 0 };

/** That a group counts a scheduler. It holds the scheduler weakly, and not its clock. */
export class CountedScheduler implements Attachment {
  readonly isExplicit: boolean;
  readonly group: SchedulerGroup;
  readonly counts: Counts;
  readonly reference: SchedulerInternals['reference'];
  /** What an owner before has counted already. */
  base: Tally | undefined;
  seen = NEVER_SEEN;
  /** Of one that has ended: the errors that are in the totals. */
  endedErrors: Counts['errors'] | undefined;

  constructor(group: SchedulerGroup, internals: SchedulerInternals, isExplicit: boolean) {
    this.group = group;
    this.counts = internals.counts;
    this.reference = internals.reference;
    this.isExplicit = isExplicit;
  }

  get isActive(): boolean {
    return this.group.isEnabled;
  }

  get options(): readonly unknown[] {
    return this.group.options;
  }

  release(scheduler: VerifyWindowScheduler): Tally | undefined {
    return this.group.release(scheduler, this);
  }

  /** Reads how long the scheduler's present state has lasted, and remembers it. */
  see(scheduler: Discoverable): PresentTimes {
    const { opened, lifetimeMs } = this.counts;
    const times = scheduler[READ_NOW]();
    this.seen = { opened, lifetimeMs, pendingMs: times.pendingMs };
    return times;
  }

  /** What the last collection saw, unless the scheduler has moved on since. */
  get pendingSeen(): number {
    return this.counts.lifetimeMs === this.seen.lifetimeMs ? this.seen.pendingMs : 0;
  }
}

/**
 * The schedulers of one bridge that share one set of attributes: those that live, and the totals of
 * those that ended. It watches them, and keeps none of them alive.
 */
export class SchedulerGroup implements VerifyWindowObserver {
  /** As it was found where the group was made. */
  readonly ownSet: AttributeSet;
  /** Whether a global provider may come at any time. */
  isWaiting = false;

  readonly #bridge: Bridge;
  /** One that was garbage-collected before it was closed is found at a collection, or at a sweep. */
  readonly #live = new SweptSet<CountedScheduler>((counted) => {
    if (counted.reference.deref() === undefined) this.#foldForgotten(counted);
  });
  readonly #ended = COUNTERS.map(() => 0);
  readonly #endedOccupancy = new OccupancyTimes();
  /** Under which it reports at present: the overflow, where it came to a hub as one too many. */
  #set: AttributeSet;
  #backend: HistogramBackend;
  #histograms: WindowHistograms;

  constructor(bridge: Bridge, set: AttributeSet, backend: HistogramBackend) {
    this.#bridge = bridge;
    this.ownSet = set;
    this.#set = set;
    this.#backend = backend;
    this.#histograms = histogramsOf(backend, set.attributes);
  }

  get isEnabled(): boolean {
    return this.#bridge.isEnabled;
  }

  get maxAttributeSets(): number {
    return this.#bridge.maxAttributeSets;
  }

  /** What tells two groups apart that a scheduler may be in. */
  get options(): readonly unknown[] {
    return [this.#bridge.hub, this.#set.key];
  }

  useHistograms(backend: HistogramBackend): void {
    this.#backend = backend;
    this.#histograms = histogramsOf(backend, this.#set.attributes);
  }

  reportAs(set: AttributeSet): void {
    if (set.key === this.#set.key) return;
    this.#set = set;
    this.useHistograms(this.#backend);
  }

  /**
   * Counts a scheduler from now on.
   *
   * @param base what another owner has counted of it already.
   */
  add(scheduler: VerifyWindowScheduler, counted: CountedScheduler, base: Tally | undefined): void {
    counted.base = base;
    counted.seen = seenBefore(counted.counts, base);
    scheduler.subscribe(this);
    this.#live.add(counted);
    if (scheduler.isClosed) this.closed(scheduler);
  }

  /**
   * Counts a scheduler no further, and keeps what it has counted of it.
   *
   * @returns from where its next owner goes on. Windows in flight that no collection has seen yet
   * go with the scheduler: there they are opened, and there they will be retired.
   */
  release(scheduler: VerifyWindowScheduler, counted: CountedScheduler): Tally {
    const { counts } = counted;
    scheduler[UNSUBSCRIBE](this);
    // One that was closed here is in the totals, with all that it ever counted.
    if (!this.#live.entries.delete(counted)) return tallyOf(counts);
    const moving = Math.min(counts.inFlight, Math.max(0, counts.opened - counted.seen.opened));
    const occupancyMs = counts.occupancyMs.with(
      counts.inFlight,
      (counts.occupancyMs[counts.inFlight] ?? 0) + counted.pendingSeen,
    );
    const tally: Tally = { ...tallyOf(counts), opened: counts.opened - moving, occupancyMs };
    this.#addEnded(tally, counted.base);
    return tally;
  }

  /** Adds a generation of which only the statistics are known. */
  addGeneration(stats: ReportedStats): void {
    this.#addEnded(countsOf(stats), undefined);
    if (this.#bridge.isEnabled) recordGeneration(this.#histograms, stats, stats);
  }

  /** The sums of everything, from one reading of each live scheduler. */
  read(): Reading {
    const counters = COUNTERS.map(() => 0);
    const gauges = GAUGES.map(() => 0);
    const occupancy = new OccupancyTimes();
    let oldestAgeMs = 0;
    for (const counted of this.#live.entries) {
      const scheduler = counted.reference.deref();
      if (scheduler === undefined) {
        this.#foldForgotten(counted);
        continue;
      }
      const { counts, base } = counted;
      const times = counted.see(scheduler);
      // Its clock is the caller's, and may have closed it: then it is among those that ended.
      if (!this.#live.entries.has(counted)) continue;
      oldestAgeMs = Math.max(oldestAgeMs, times.oldestAgeMs);
      addSeries(counters, COUNTERS, counts, base);
      addSeries(gauges, GAUGES, counts, undefined);
      occupancy.addAll(counts, base);
      occupancy.add(counts.inFlight, times.pendingMs, counts.depth);
    }
    addTo(counters, this.#ended);
    occupancy.addTimes(this.#endedOccupancy);
    return { counters, gauges, occupancy, oldestAgeMs };
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
    const counted = this.#countedOf(scheduler);
    // While it is live, its counts have the error already.
    if (counted?.endedErrors === undefined) return;
    const { errors } = counted.counts;
    const added = counted.endedErrors;
    counted.endedErrors = errors;
    const index = COUNTERS.findIndex(
      ({ instrument, attributes }) =>
        instrument === INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_ERRORS &&
        attributes?.[ATTR_ERROR_TYPE] === code,
    );
    this.#ended[index] = (this.#ended[index] ?? 0) + errors[code] - added[code];
  }

  closed(scheduler: VerifyWindowScheduler): void {
    const counted = this.#countedOf(scheduler);
    if (counted === undefined || counted.endedErrors !== undefined) return;
    this.#bridge.followProvider();
    this.#fold(counted);
    const { counts, base } = counted;
    if (this.#bridge.isEnabled && base?.isClosed !== true) {
      recordGeneration(this.#histograms, counts, occupancyOf(counts.occupancyMs));
    }
  }

  failed(error: unknown): void {
    this.#bridge.report(error);
  }

  #countedOf(scheduler: VerifyWindowScheduler): CountedScheduler | undefined {
    const counting = countingOf(scheduler);
    return counting instanceof CountedScheduler && counting.group === this ? counting : undefined;
  }

  /**
   * Ends a scheduler that was garbage-collected, with the time that the last collection saw of it.
   * When its generation ended is not known, so it has no average over its time.
   */
  #foldForgotten(counted: CountedScheduler): void {
    const { counts } = counted;
    const { inFlight } = counts;
    problems.forgotten_scheduler++;
    counts.occupancyMs[inFlight] = (counts.occupancyMs[inFlight] ?? 0) + counted.pendingSeen;
    counts.dropAll('closed');
    counts.isClosed = true;
    this.#fold(counted);
  }

  #fold(counted: CountedScheduler): void {
    this.#live.entries.delete(counted);
    this.#addEnded(counted.counts, counted.base);
    counted.endedErrors = counted.counts.errors;
  }

  #addEnded(counts: ReadableCounts & OccupancyCounts, base: Tally | undefined): void {
    addSeries(this.#ended, COUNTERS, counts, base);
    this.#endedOccupancy.addAll(counts, base);
  }
}

/** What collections have seen of a scheduler when it comes from an owner before. */
function seenBefore(counts: Counts, base: Tally | undefined): Seen {
  if (base === undefined) return NEVER_SEEN;
  const { inFlight, lifetimeMs, occupancyMs } = counts;
  const pendingMs = (base.occupancyMs[inFlight] ?? 0) - (occupancyMs[inFlight] ?? 0);
  return { opened: base.opened, lifetimeMs, pendingMs };
}

function addSeries(
  sums: number[],
  series: readonly Series[],
  counts: ReadableCounts,
  base: Tally | undefined,
): void {
  for (let index = 0; index < series.length; index++) {
    const { read } = series[index] as Series;
    const own = read(counts) - (base === undefined ? 0 : read(base));
    sums[index] = saturated((sums[index] ?? 0) + own);
  }
}

/** Adds numbers to others, place by place. */
export function addTo(sums: number[], values: readonly number[]): void {
  values.forEach((value, index) => {
    sums[index] = saturated((sums[index] ?? 0) + value);
  });
}

/** A sum that can still be exported: one of absurd durations is infinite, or the difference of two. */
function saturated(sum: number): number {
  return Number.isNaN(sum) ? Number.MAX_VALUE : Math.min(sum, Number.MAX_VALUE);
}

type OccupancyCounts = Pick<Tally, 'depth' | 'occupancyMs'>;

/** Time at each occupancy level, added up over schedulers. Milliseconds. */
export class OccupancyTimes {
  readonly byLevel: number[] = [];
  /** Time with two or more in flight. */
  parallelMs = 0;
  /** Time with as many in flight as the scheduler's own depth allows. */
  fullMs = 0;
  /** Time that windows were in flight, added up over the windows. */
  windowMs = 0;

  add(level: number, ms: number, depth: number): void {
    while (this.byLevel.length <= level) this.byLevel.push(0);
    this.byLevel[level] = (this.byLevel[level] ?? 0) + ms;
    if (level >= 2) this.parallelMs += ms;
    if (level === depth) this.fullMs += ms;
    this.windowMs += level * ms;
  }

  addAll({ depth, occupancyMs }: OccupancyCounts, base?: Tally): void {
    for (let level = 0; level <= depth; level++) {
      this.add(level, (occupancyMs[level] ?? 0) - (base?.occupancyMs[level] ?? 0), depth);
    }
  }

  addTimes(other: OccupancyTimes): void {
    addTo(this.byLevel, other.byLevel);
    this.windowMs += other.windowMs;
    this.parallelMs += other.parallelMs;
    this.fullMs += other.fullMs;
  }
}

/**
 * The counts of a generation of which only the statistics are known. Its windows are all retired,
 * but nobody told by which verdict: they count as `unverified`, and no token is made up for them.
 */
function countsOf(stats: ReportedStats): Tally {
  const { directReturnUpstreamOpened = false, directReturnReverseFallback = false } = stats;
  const { horizonRefillMisses = 0, horizonRefillSuccesses = 0, horizonRefillTokens = 0 } = stats;
  return {
    ...tallyOf(new Counts(stats.depth)),
    ...stats,
    completed: { full_accept: 0, partial_accept: 0, reject: 0, stale: 0, unverified: stats.opened },
    horizonRefills: { success: horizonRefillSuccesses, miss: horizonRefillMisses },
    horizonRefillTokens,
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
function recordGeneration(
  histograms: WindowHistograms,
  { opened, maxInFlight }: Pick<VerifyWindowStats, 'opened' | 'maxInFlight'>,
  occupancy: ReturnType<typeof occupancyOf>,
): void {
  if (opened === 0) return;
  histograms.averageInFlight.record(occupancy.occupancyAverageInFlight);
  histograms.parallelFraction.record(occupancy.occupancyParallelFraction);
  histograms.fullFraction.record(occupancy.occupancyFullFraction);
  histograms.maxInFlight.record(maxInFlight);
}
