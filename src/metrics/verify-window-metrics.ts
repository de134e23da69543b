import type {
  Attributes,
  BatchObservableResult,
  Meter,
  MeterProvider,
  Observable,
} from '@opentelemetry/api';
import {
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME,
  type Instrument,
} from '../../semconv/instruments.js';
import { reportOnce } from '../diag.js';
import { parseResponseTimings, responseTimings } from '../scheduler/response-timings.js';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import { snapshot, type VerifyWindowStats } from '../scheduler/stats.js';
import type { Tally } from '../scheduler/tally.js';
import type { AttributeSet } from './attribute-set.js';
import { AttributeSets } from './attribute-sets.js';
import { MeterHistograms } from './meter-histograms.js';
import { MeterSource } from './meter-source.js';
import { SetObserver } from './set-observer.js';
import { COUNTERS, GAUGES } from './signals.js';
import { type HistogramBackend, recordGeneration } from './window-histograms.js';

/** The instruments of the pulled counters, each once. */
const PULLED_COUNTERS: ReadonlySet<Instrument> = new Set([
  ...COUNTERS.map(({ instrument }) => instrument),
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME,
]);

export interface VerifyWindowMetricsOptions {
  /**
   * The meter to record on. By default a meter of the global provider, looked up again when a
   * provider is registered after the bridge was made.
   */
  readonly meter?: Meter;
  /**
   * How many different attribute sets are kept apart: an integer of at least 1. Schedulers with
   * further ones are counted together under `otel.metric.overflow`. Default: 100, which at depth
   * 8 stays below the 2,000 series for each metric at which the SDK cuts off by itself.
   */
  readonly maxAttributeSets?: number;
  /**
   * How histograms are recorded. By default on the meter; `PreaggregatedHistograms` of
   * `llama-stage-otel/producer` costs a small part of that.
   */
  readonly histograms?: HistogramBackend;
}

/**
 * Records what verify-window schedulers do as OpenTelemetry metrics. One bridge serves any number
 * of schedulers, that come and go.
 *
 * Counters and gauges are pulled: a collection reads the plain numbers of every live scheduler
 * and the totals of those that ended, through one callback. Only histograms are recorded as
 * things happen. A scheduler is never kept alive: one that is closed is folded into the totals
 * at once, one that was forgotten when it is garbage-collected.
 *
 * | metric | kind | unit | meaning |
 * |---|---|---|---|
 * | `llama_stage.verify_window.opened` | counter | `{window}` | windows admitted |
 * | `….completed` | counter | `{window}` | windows retired by their reply, by verdict |
 * | `….dropped` | counter | `{window}` | windows removed without a reply, by reason |
 * | `….errors` | counter | `{error}` | refused calls, by `error.type` |
 * | `….in_flight`, `….capacity` | up-down counter | `{window}` | windows in flight, and how many could be |
 * | `….scheduler.count` | up-down counter | `{scheduler}` | live schedulers |
 * | `….occupancy_time` | counter | `s` | time at each number of windows in flight |
 * | `….parallel_time`, `….full_time` | counter | `s` | time with two or more, and with `depth`, in flight |
 * | `….recovery_epochs` | counter | `{epoch}` | recovery epochs begun |
 * | `….stale_marked`, `….stale_discarded` | counter | `{window}` | windows marked stale, and drained |
 * | `….stale_drain_time`, `….stale_stage0_compute_time`, `….stale_forward_write_time`, `….stale_downstream_wait_time`, `….stale_verify_time` | counter | `s` | work that stale windows burned |
 * | `….horizon_refills` | counter | `{refill}` | refill attempts, by outcome |
 * | `….horizon_refill_tokens` | counter | `{token}` | tokens that refills appended |
 * | `….direct_returns` | counter | `{generation}` | generations, by the path of their predictions |
 * | `….proposed_tokens`, `….accepted_tokens` | counter | `{token}` | candidates verified, and accepted |
 * | `….occupancy` | histogram | `{window}` | windows in flight after each admission |
 * | `….duration` | histogram | `s` | from open to reply |
 * | `….accepted_length` | histogram | `{token}` | accepted tokens of each verified window |
 * | `….average_in_flight`, `….max_in_flight` | histogram | `{window}` | one generation's, at its close |
 * | `….parallel_fraction`, `….full_fraction` | histogram | `1` | likewise |
 *
 * At every collection, for each attribute set: `opened = completed + dropped + in_flight`, and
 * `occupancy_time` over all levels is the total lifetime of the schedulers.
 */
export class VerifyWindowMetrics {
  readonly #source: MeterSource;
  readonly #sets: AttributeSets;
  readonly #histograms: HistogramBackend;
  readonly #observers = new WeakMap<AttributeSet, SetObserver>();
  readonly #observed = new WeakSet<Tally>();
  readonly #observe = (result: BatchObservableResult) => this.#observeAll(result);
  /** What the observers of the schedulers see of this bridge. */
  readonly #bridge = {
    isEnabled: true,
    isWaiting: false,
    followProvider: () => this.#followProvider(),
    foldClosed: (observer: SetObserver, tally: Tally) => this.#foldClosed(observer, tally),
    foldForgotten: (observer: SetObserver, tally: Tally) => this.#foldForgotten(observer, tally),
    report: reportOnce('recording verify-window metrics failed'),
  };

  #meter: Meter | undefined;
  #observables = new Map<Instrument, Observable>();

  /** @throws {VerifyWindowError} `invalid_argument` for a `maxAttributeSets` out of its range. */
  constructor(options: VerifyWindowMetricsOptions = {}) {
    const { meter, maxAttributeSets, histograms = new MeterHistograms() } = options;
    this.#source = new MeterSource(meter);
    this.#sets = new AttributeSets(maxAttributeSets);
    this.#histograms = histograms;
    this.#followProvider();
  }

  /**
   * Counts what this scheduler has done and will do. Attaching it again changes nothing.
   *
   * @param attributes go onto every metric of this scheduler. Keep them few and bounded; who the
   * worker is belongs in its resource.
   */
  observe(scheduler: VerifyWindowScheduler, attributes: Attributes = {}): void {
    const { tally } = scheduler;
    if (this.#observed.has(tally)) return;
    this.#observed.add(tally);
    this.#followProvider();
    const observer = this.#observerOf(attributes);
    scheduler.subscribe(observer);
    if (scheduler.isClosed) {
      this.#foldClosed(observer, tally);
      return;
    }
    observer.set.attach(tally);
    observer.forgotten.register(scheduler, tally, tally);
  }

  /**
   * Counts a finished generation of which only the statistics are known, such as those that
   * {@link parseResponseTimings} gave. What they do not tell is left out: no window duration, no
   * token, no error; and its windows count as completed with the verdict `unverified`. Do not
   * pass statistics of a scheduler that is observed too: it would count twice.
   *
   * @throws {VerifyWindowError} `invalid_argument` where the statistics contradict themselves.
   */
  recordGeneration(stats: VerifyWindowStats, attributes: Attributes = {}): void {
    const checked = parseResponseTimings(responseTimings(stats));
    this.#followProvider();
    const { set, histograms } = this.#observerOf(attributes);
    set.addGeneration(checked);
    if (this.#bridge.isEnabled) recordGeneration(histograms, checked);
  }

  /**
   * Records on this provider from now on, in place of the global one. A bridge that was given a
   * meter keeps it.
   */
  setMeterProvider(provider: MeterProvider): void {
    this.#source.setProvider(provider);
    this.#followProvider();
  }

  /**
   * Changes how many attribute sets are kept apart. Those that there are stay.
   *
   * @throws {VerifyWindowError} `invalid_argument` for what is no integer of at least 1.
   */
  setMaxAttributeSets(limit: number): void {
    this.#sets.setLimit(limit);
  }

  /**
   * Gives and records nothing from now on, until {@link VerifyWindowMetrics.enable}. Counting goes
   * on, so no counter falls when it is enabled again; what the histograms would have recorded in
   * the meantime is lost. Before the end of a process collect first, or shut the provider down:
   * what was not collected by then is not exported.
   */
  disable(): void {
    if (!this.#bridge.isEnabled) return;
    this.#bridge.isEnabled = false;
    this.#removeCallback();
  }

  /** Gives and records again after {@link VerifyWindowMetrics.disable}. */
  enable(): void {
    if (this.#bridge.isEnabled) return;
    this.#bridge.isEnabled = true;
    this.#addCallback();
    this.#followProvider();
  }

  /** The one observer that all schedulers with these attributes share. */
  #observerOf(attributes: Attributes): SetObserver {
    const set = this.#sets.get(attributes);
    const known = this.#observers.get(set);
    if (known !== undefined) return known;
    const histograms = this.#histograms.bind(set.attributes);
    const observer = new SetObserver(this.#bridge, set, histograms);
    this.#observers.set(set, observer);
    return observer;
  }

  #foldClosed({ set, histograms, forgotten }: SetObserver, tally: Tally): void {
    forgotten.unregister(tally);
    this.#followProvider();
    set.fold(tally);
    if (this.#bridge.isEnabled) recordGeneration(histograms, snapshot(tally));
  }

  /** When a forgotten generation ended is not known, so it has no average over its time. */
  #foldForgotten({ set }: SetObserver, tally: Tally): void {
    try {
      tally.end();
      set.fold(tally);
    } catch (error) {
      this.#bridge.report(error);
    }
  }

  /** Moves to another meter, where the provider has changed. */
  #followProvider(): void {
    const meter = this.#source.takeChange();
    if (meter !== undefined) this.#useMeter(meter);
  }

  #useMeter(meter: Meter): void {
    this.#removeCallback();
    this.#meter = meter;
    this.#bridge.isWaiting = this.#source.isWaiting;
    this.#histograms.useMeter(meter);
    this.#observables = new Map();
    for (const instrument of PULLED_COUNTERS) {
      const { name, options } = instrument;
      this.#observables.set(instrument, meter.createObservableCounter(name, options));
    }
    for (const { instrument } of GAUGES) {
      const { name, options } = instrument;
      this.#observables.set(instrument, meter.createObservableUpDownCounter(name, options));
    }
    if (this.#bridge.isEnabled) this.#addCallback();
  }

  #addCallback(): void {
    this.#meter?.addBatchObservableCallback(this.#observe, [...this.#observables.values()]);
  }

  #removeCallback(): void {
    this.#meter?.removeBatchObservableCallback(this.#observe, [...this.#observables.values()]);
  }

  #observeAll(result: BatchObservableResult): void {
    const find = (instrument: Instrument) => this.#observables.get(instrument) as Observable;
    for (const set of this.#sets) set.observe(result, find, (tally) => this.#pendingMs(tally));
  }

  /** The clock is the host's: one that throws must not cost the other schedulers their numbers. */
  #pendingMs(tally: Tally): number {
    try {
      return tally.pendingMs();
    } catch (error) {
      this.#bridge.report(error);
      return 0;
    }
  }
}
