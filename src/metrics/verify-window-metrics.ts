import type { Attributes, MeterProvider } from '@opentelemetry/api';
import { attach } from '../attach.js';
import { DEFAULT_MAX_ATTRIBUTE_SETS, requireLimit } from '../attribute-sets.js';
import { Guard } from '../guard.js';
import type { HistogramBackend } from '../histograms/histogram-backend.js';
import { refuseArgument } from '../scheduler/error.js';
import {
  parseResponseTimings,
  type ReportedStats,
  responseTimings,
} from '../scheduler/response-timings.js';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import { type Hub, HubSource } from './hub.js';
import { type Bridge, CountedScheduler, SchedulerGroup } from './scheduler-group.js';

export interface VerifyWindowMetricsOptions {
  /** Where metrics go. Default: the global provider, also one that is registered later. */
  readonly meterProvider?: MeterProvider;
  /**
   * How many different attribute sets are kept apart on a meter provider: an integer of at least 1.
   * Schedulers with further ones are counted together under `otel.metric.overflow`. More than 284 are
   * never kept apart, and levels of occupancy that would be series too many share one: so the sums
   * stay right below the 2,000 series of a metric at which the SDK cuts off. Default: 100.
   */
  readonly maxAttributeSets?: number;
  /**
   * How histograms are recorded. By default on the meter; `PreaggregatedHistograms` of
   * `llama-stage-otel/producer` costs a small part of that. All that report to one meter provider
   * record in one way, the first that was asked for.
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
 * | `….oldest_age` | gauge | `s` | age of the oldest window in flight |
 * | `….in_flight`, `….capacity` | up-down counter | `{window}` | windows in flight, and how many could be |
 * | `….scheduler.count` | up-down counter | `{scheduler}` | live schedulers |
 * | `….occupancy_time` | counter | `s` | time at each number of windows in flight |
 * | `….window_time` | counter | `s` | time that windows were in flight, added up |
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
 *
 * Any number of bridges may report to one meter provider: they give one point for each series, the
 * sum. A scheduler is counted once, by the first bridge that observes it.
 */
export class VerifyWindowMetrics {
  readonly #source: HubSource;
  readonly #groups = new Map<string, SchedulerGroup>();
  readonly #guard = new Guard('recording verify-window metrics failed');
  /** What the groups see of this bridge. */
  readonly #bridge: { isEnabled: boolean; hub: Hub; maxAttributeSets: number } & Bridge;

  /** @throws {VerifyWindowError} `invalid_argument` for a `maxAttributeSets` out of its range. */
  constructor(options?: VerifyWindowMetricsOptions) {
    const {
      histograms,
      maxAttributeSets = DEFAULT_MAX_ATTRIBUTE_SETS,
      meterProvider,
    } = options ?? {};
    requireLimit(maxAttributeSets);
    this.#source = new HubSource(meterProvider, histograms);
    this.#bridge = {
      isEnabled: true,
      hub: this.#source.hub,
      maxAttributeSets,
      followProvider: () => this.#followProvider(),
      report: this.#guard.report,
    };
  }

  /**
   * Counts what this scheduler has done and will do. One that is counted already stays as it is, but
   * for one that an instrumentation has found: what it does from now on is counted here.
   *
   * @param attributes go onto every metric of this scheduler. Keep them few and bounded; who the
   * worker is belongs in its resource.
   */
  observe(scheduler: VerifyWindowScheduler, attributes: Attributes = {}): void {
    this.#guard.run(() => this.#attach(scheduler, attributes, true));
  }

  /** Counts a scheduler that was found, and not given: it goes to whoever observes it. */
  discover(scheduler: VerifyWindowScheduler, attributes: Attributes = {}): void {
    this.#guard.run(() => this.#attach(scheduler, attributes, false));
  }

  /**
   * Counts a finished generation of which only the statistics are known, such as those that
   * {@link parseResponseTimings} gave. What they do not tell is left out: no window duration, no
   * token, no error; and its windows count as completed with the verdict `unverified`. Do not
   * pass statistics of a scheduler that is observed too: it would count twice.
   *
   * @param stats where there are none, as in the response of another server, nothing is counted.
   * @throws {VerifyWindowError} `invalid_argument` where the statistics contradict themselves.
   */
  recordGeneration(stats: ReportedStats | undefined, attributes: Attributes = {}): void {
    const checked = stats && parseResponseTimings(responseTimings(stats));
    if (checked === undefined) return;
    this.#guard.run(() => this.#groupOf(attributes).addGeneration(checked));
  }

  /**
   * Counts that the output of a generation was compared with that of a serial control, token for token.
   *
   * @param isEqual whether every token was the same.
   * @throws {VerifyWindowError} `invalid_argument` for what is neither true nor false.
   */
  recordControlComparison(isEqual: boolean, attributes: Attributes = {}): void {
    if (typeof isEqual !== 'boolean') refuseArgument('isEqual', 'true or false', isEqual);
    this.#guard.run(() => {
      this.#followProvider();
      const { hub, isEnabled, maxAttributeSets } = this.#bridge;
      if (isEnabled) hub.countComparison(hub.sets.get(attributes, maxAttributeSets), isEqual);
    });
  }

  /** Records on this provider from now on, with all that was counted before. */
  setMeterProvider(provider: MeterProvider): void {
    this.#guard.run(() => {
      this.#source.setProvider(provider);
      this.#followProvider();
    });
  }

  /**
   * Changes how many attribute sets are kept apart. Those that there are stay.
   *
   * @throws {VerifyWindowError} `invalid_argument` for what is not an integer of at least 1.
   */
  setMaxAttributeSets(limit: number): void {
    requireLimit(limit);
    this.#bridge.maxAttributeSets = limit;
  }

  /**
   * Records nothing from now on, until {@link VerifyWindowMetrics.enable}. What is exported stands
   * still: counters at what they had reached, up-down counters at 0. Counting goes on, so no counter
   * falls when it is enabled again; what the histograms would have recorded meanwhile is lost.
   * Before the end of a process collect first, or shut the provider down: what was not collected by
   * then is not exported.
   */
  disable(): void {
    if (!this.#bridge.isEnabled) return;
    this.#bridge.isEnabled = false;
    this.#guard.run(() => {
      for (const group of this.#groups.values()) this.#bridge.hub.hold(group);
    });
  }

  /** Records again after {@link VerifyWindowMetrics.disable}. */
  enable(): void {
    if (this.#bridge.isEnabled) return;
    this.#bridge.isEnabled = true;
    this.#guard.run(() => {
      for (const group of this.#groups.values()) this.#bridge.hub.join(group);
      this.#followProvider();
    });
  }

  #attach(scheduler: VerifyWindowScheduler, attributes: Attributes, isExplicit: boolean): void {
    const group = this.#groupOf(attributes);
    attach(
      'counting',
      scheduler,
      (internals) => new CountedScheduler(group, internals, isExplicit),
      (counted, goOnFrom) => group.add(scheduler, counted, goOnFrom),
    );
  }

  /** The one group that all schedulers with these attributes share. */
  #groupOf(attributes: Attributes): SchedulerGroup {
    this.#followProvider();
    const set = this.#bridge.hub.sets.get(attributes, this.#bridge.maxAttributeSets);
    const known = this.#groups.get(set.key);
    if (known !== undefined) return known;
    const group = new SchedulerGroup(this.#bridge, set, this.#source.histograms);
    this.#groups.set(set.key, group);
    if (this.#bridge.isEnabled) this.#bridge.hub.join(group);
    return group;
  }

  /** Moves to another hub, where the provider has changed. */
  #followProvider(): void {
    const { hub } = this.#source;
    if (hub === this.#bridge.hub) return;
    for (const group of this.#groups.values()) {
      this.#bridge.hub.hold(group);
      group.useHistograms(this.#source.histograms);
      if (this.#bridge.isEnabled) hub.join(group);
    }
    this.#bridge.hub = hub;
  }
}
