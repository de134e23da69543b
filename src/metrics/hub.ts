import {
  type Attributes,
  type BatchObservableResult,
  createNoopMeter,
  type Meter,
  type MeterProvider,
  metrics,
  type Observable,
} from '@opentelemetry/api';
import {
  ATTR_LLAMA_STAGE_GENERATION_CONTROL_RESULT,
  ATTR_LLAMA_STAGE_GENERATION_OUTCOME,
  ATTR_LLAMA_STAGE_TELEMETRY_PROBLEM,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL,
  LLAMA_STAGE_GENERATION_CONTROL_RESULT_VALUES,
  LLAMA_STAGE_GENERATION_OUTCOME_VALUES,
  LLAMA_STAGE_TELEMETRY_PROBLEM_VALUES,
} from '../../semconv/attributes.js';
import {
  INSTRUMENT_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS,
  INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT,
  INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS,
  INSTRUMENT_LLAMA_STAGE_TELEMETRY_PROBLEMS,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME,
  type Instrument,
} from '../../semconv/instruments.js';
import { shared } from '../attach.js';
import {
  type AttributeSet,
  AttributeSets,
  MAX_ATTRIBUTE_SETS,
  MAX_SERIES,
} from '../attribute-sets.js';
import { Guard, problems, SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION, warnOnce } from '../guard.js';
import { type HistogramBackend, MeterHistograms } from '../histograms/histogram-backend.js';
import { OTHER_ERROR } from '../scheduler/error.js';
import { COUNTERS, GAUGES } from './counted-series.js';
import { addTo, OccupancyTimes, type Reading, type SchedulerGroup } from './scheduler-group.js';

/** The instruments of the pulled counters, each once. */
const PULLED_COUNTERS: ReadonlySet<Instrument> = new Set([
  ...COUNTERS.map(({ instrument }) => instrument),
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME,
  INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME,
  INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT,
  INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS,
  INSTRUMENT_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS,
  INSTRUMENT_LLAMA_STAGE_TELEMETRY_PROBLEMS,
]);

/**
 * Everything of this package that reports to one meter provider, from whatever bridge and whatever
 * copy of the package. It gives one point for each series, the sum over all of them, through one
 * callback that is added once and never taken away: what leaves, or is disabled, is held.
 */
export class Hub {
  readonly provider: MeterProvider;
  /** Of schedulers. */
  readonly sets = new AttributeSets();
  /** Of generations. */
  readonly generationSets = new AttributeSets();
  /** Of stages. */
  readonly stageSets = new AttributeSets();
  readonly #meter: Meter;
  readonly #observables = new Map<Instrument, Observable>();
  readonly #generations = new Map<AttributeSet, GenerationCounts>();
  readonly #comparisons = new Map<AttributeSet, CountedValue[]>();
  readonly #problemsBefore = { ...problems };
  /** How many series of occupancy levels there may still be. */
  #levelsLeft = MAX_SERIES;
  /** How many series of failed generations there may still be beyond one for each attribute set. */
  #errorSeriesLeft =
    MAX_SERIES - (MAX_ATTRIBUTE_SETS + 1) * LLAMA_STAGE_GENERATION_OUTCOME_VALUES.length;
  readonly #series = new Map<string, SeriesSet>();
  /** Where each group reports that ever joined. */
  readonly #joined = new Map<SchedulerGroup, SeriesSet>();
  readonly #guard = new Guard('collecting verify-window metrics failed');
  #histograms: HistogramBackend;

  constructor(provider: MeterProvider) {
    this.provider = provider;
    this.#meter = provider.getMeter(SCOPE_NAME, SCOPE_VERSION, { schemaUrl: SCHEMA_URL });
    this.#histograms = new MeterHistograms(this.#meter);
    if (this.isWaiting) return;
    for (const instrument of PULLED_COUNTERS) {
      const { name, options } = instrument;
      this.#observables.set(instrument, this.#meter.createObservableCounter(name, options));
    }
    for (const { instrument } of GAUGES) {
      const { name, options } = instrument;
      this.#observables.set(instrument, this.#meter.createObservableUpDownCounter(name, options));
    }
    const { name, options } = INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE;
    this.#observables.set(
      INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE,
      this.#meter.createObservableGauge(name, options),
    );
    this.#meter.addBatchObservableCallback(
      (result) => this.#observe(result),
      [...this.#observables.values()],
    );
  }

  /** Whether there is no real provider yet, so that one may come at any time. */
  get isWaiting(): boolean {
    return isNoop(this.#meter);
  }

  get histograms(): HistogramBackend {
    return this.#histograms;
  }

  /**
   * Records histograms with this backend from now on, for all: two of them would each give a point
   * of the same series. The first that was asked for stays, and the meter's where it has points.
   */
  useHistograms(backend: HistogramBackend): void {
    const current = this.#histograms;
    if (backend === current) return;
    if (!(current instanceof MeterHistograms) || current.isUsed) {
      warnOnce(
        'another way to record histograms is in use on this meter provider; the later one is ignored',
      );
      return;
    }
    this.#histograms = backend;
    for (const set of this.#series.values()) set.useHistograms(backend);
  }

  /** The counts of generations of a set, which is one of {@link Hub.generationSets}. */
  generationCounts(set: AttributeSet): GenerationCounts {
    return getOrMake(this.#generations, set, () => ({
      outputTokens: 0,
      errorTypes: new Set(),
      outcomes: countedValues(
        set,
        ATTR_LLAMA_STAGE_GENERATION_OUTCOME,
        LLAMA_STAGE_GENERATION_OUTCOME_VALUES,
      ),
    }));
  }

  /**
   * The type under which an error of this type is recorded for a set: that one, unless its series
   * would be one too many.
   */
  errorTypeOf(set: AttributeSet, errorType: string): string {
    const { errorTypes } = this.generationCounts(set);
    if (errorType === OTHER_ERROR || errorTypes.has(errorType)) return errorType;
    if (this.#errorSeriesLeft === 0) return OTHER_ERROR;
    this.#errorSeriesLeft--;
    errorTypes.add(errorType);
    return errorType;
  }

  /** Counts a comparison with a control. The set is one of {@link Hub.sets}. */
  countComparison(set: AttributeSet, isEqual: boolean): void {
    countValue(this.#comparisonCounts(set), isEqual ? 'equal' : 'different');
  }

  #comparisonCounts(set: AttributeSet): CountedValue[] {
    return getOrMake(this.#comparisons, set, () =>
      countedValues(
        set,
        ATTR_LLAMA_STAGE_GENERATION_CONTROL_RESULT,
        LLAMA_STAGE_GENERATION_CONTROL_RESULT_VALUES,
      ),
    );
  }

  /** Reports this group from now on, also one that was held. */
  join(group: SchedulerGroup): void {
    // Sets that were found on another hub count among those of this one.
    const series = getOrMake(this.#joined, group, () =>
      this.#seriesOf(this.sets.adopt(group.ownSet, group.maxAttributeSets), group),
    );
    series.join(group);
    group.reportAs(series.set);
    group.isWaiting = this.isWaiting;
  }

  #seriesOf(set: AttributeSet, { maxAttributeSets }: SchedulerGroup): SeriesSet {
    return getOrMake(
      this.#series,
      set.key,
      () => new SeriesSet(set, this.#grantLevels(maxAttributeSets)),
    );
  }

  /** Reports of this group from now on what it amounts to now, and nothing of it as live. */
  hold(group: SchedulerGroup): void {
    const series = this.#joined.get(group);
    if (!this.isWaiting) {
      series?.hold(group);
      return;
    }
    series?.leave(group);
    this.#joined.delete(group);
  }

  /**
   * How many occupancy levels a further attribute set gets series for: an equal part of what is left,
   * with one kept back for every set that may yet come.
   */
  #grantLevels(limit: number): number {
    const known = this.#series.size;
    const sets = Math.max(1, Math.min(limit, MAX_ATTRIBUTE_SETS) + 1 - known);
    const keptBack = Math.max(0, MAX_ATTRIBUTE_SETS - known);
    const levels = Math.min(Math.floor(this.#levelsLeft / sets), this.#levelsLeft - keptBack);
    this.#levelsLeft -= levels;
    return Math.max(1, levels);
  }

  #observe(result: BatchObservableResult): void {
    const find = (instrument: Instrument) => this.#observables.get(instrument) as Observable;
    for (const set of this.#series.values()) this.#guard.run(() => set.observe(result, find));
    const observe = (instrument: Instrument, counts: readonly CountedValue[]) => {
      const observable = find(instrument);
      for (const { count, attributes } of counts) result.observe(observable, count, attributes);
    };
    for (const [set, { outcomes, outputTokens }] of this.#generations) {
      observe(INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT, outcomes);
      const tokens = find(INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS);
      result.observe(tokens, outputTokens, set.attributes);
    }
    for (const counts of this.#comparisons.values()) {
      observe(INSTRUMENT_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS, counts);
    }
    const observable = find(INSTRUMENT_LLAMA_STAGE_TELEMETRY_PROBLEMS);
    for (const problem of LLAMA_STAGE_TELEMETRY_PROBLEM_VALUES) {
      const count = problems[problem] - this.#problemsBefore[problem];
      if (count === 0) continue;
      result.observe(observable, count, { [ATTR_LLAMA_STAGE_TELEMETRY_PROBLEM]: problem });
    }
  }
}

/** What the generations of one attribute set come to. */
export interface GenerationCounts {
  /** Committed so far, also by those under way. */
  outputTokens: number;
  /** Of those that failed: what has a series of its own. */
  readonly errorTypes: Set<string>;
  /** How many ended in each way. */
  readonly outcomes: CountedValue[];
}

/** A series for one value of an attribute. Each value has one from the start, so that the first rise shows. */
interface CountedValue {
  readonly value: string;
  readonly attributes: Attributes;
  count: number;
}

function countedValues(set: AttributeSet, name: string, values: readonly string[]): CountedValue[] {
  return values.map((value) => ({
    value,
    attributes: { ...set.attributes, [name]: value },
    count: 0,
  }));
}

export function countValue(counts: readonly CountedValue[], value: string, times = 1): void {
  for (const counted of counts) if (counted.value === value) counted.count += times;
}

function getOrMake<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

/** Finds the observable that stands for an instrument. */
type FindObservable = (instrument: Instrument) => Observable;

/** All series with the same attributes. */
class SeriesSet {
  readonly set: AttributeSet;
  readonly #attributes: Attributes;
  /** The highest level with a series of its own, which stands for all above it, too. */
  readonly #highestLevel: number;
  /** The groups, each with what is reported of it while it is held. */
  readonly #groups = new Map<SchedulerGroup, Reading | undefined>();
  readonly #counterAttributes: readonly Attributes[];
  readonly #levelAttributes: Attributes[] = [];
  /**
   * The largest value reported of each series; a number is an occupancy level. Sums of doubles
   * depend on their order, which changes when a scheduler ends: without this, a counter could fall
   * by its last digit, and a backend would take that for a restart.
   */
  readonly #reported = new Map<object | number, number>();

  /** @param levels how many occupancy levels may have series. */
  constructor(set: AttributeSet, levels: number) {
    const { attributes } = set;
    this.set = set;
    this.#attributes = attributes;
    this.#highestLevel = levels - 1;
    this.#counterAttributes = COUNTERS.map((series) => ({ ...attributes, ...series.attributes }));
  }

  join(group: SchedulerGroup): void {
    this.#groups.set(group, undefined);
  }

  leave(group: SchedulerGroup): void {
    this.#groups.delete(group);
  }

  hold(group: SchedulerGroup): void {
    if (!this.#groups.has(group) || this.#groups.get(group) !== undefined) return;
    this.#groups.set(group, { ...group.read(), gauges: GAUGES.map(() => 0), oldestAgeMs: 0 });
  }

  useHistograms(backend: HistogramBackend): void {
    for (const [group, held] of this.#groups) {
      if (held === undefined) group.useHistograms(backend);
    }
  }

  observe(result: BatchObservableResult, find: FindObservable): void {
    const { counters, gauges, occupancy, oldestAgeMs } = this.#read();
    COUNTERS.forEach((series, index) => {
      const value = this.#rising(series, counters[index] ?? 0);
      result.observe(find(series.instrument), value, this.#counterAttributes[index]);
    });
    GAUGES.forEach(({ instrument }, index) => {
      result.observe(find(instrument), gauges[index] ?? 0, this.#attributes);
    });
    const oldest = find(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE);
    result.observe(oldest, oldestAgeMs / 1000, this.#attributes);
    this.#observeOccupancy(result, find, occupancy);
  }

  #read(): Reading {
    const counters = COUNTERS.map(() => 0);
    const gauges = GAUGES.map(() => 0);
    const occupancy = new OccupancyTimes();
    let oldestAgeMs = 0;
    for (const [group, held] of this.#groups) {
      const reading = held ?? group.read();
      addTo(counters, reading.counters);
      addTo(gauges, reading.gauges);
      occupancy.addTimes(reading.occupancy);
      oldestAgeMs = Math.max(oldestAgeMs, reading.oldestAgeMs);
    }
    return { counters, gauges, occupancy, oldestAgeMs };
  }

  #observeOccupancy(
    result: BatchObservableResult,
    find: FindObservable,
    { byLevel, fullMs, parallelMs, windowMs }: OccupancyTimes,
  ): void {
    const byLevelTime = find(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME);
    this.#withinLevels(byLevel).forEach((ms, level) => {
      this.#levelAttributes[level] ??= {
        ...this.#attributes,
        [ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL]: level,
      };
      result.observe(byLevelTime, this.#rising(level, ms / 1000), this.#levelAttributes[level]);
    });
    const observe = (instrument: Instrument, ms: number) =>
      result.observe(find(instrument), this.#rising(instrument, ms / 1000), this.#attributes);
    observe(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME, parallelMs);
    observe(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME, fullMs);
    observe(INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME, windowMs);
  }

  #withinLevels(byLevel: readonly number[]): readonly number[] {
    const highest = this.#highestLevel;
    if (byLevel.length <= highest + 1) return byLevel;
    const shared = byLevel.slice(highest).reduce((total, ms) => total + ms, 0);
    return [...byLevel.slice(0, highest), shared];
  }

  #rising(series: object | number, value: number): number {
    const reported = Math.max(value, this.#reported.get(series) ?? 0);
    this.#reported.set(series, reported);
    return reported;
  }
}

/** The hub of a provider. Those who follow a global provider that is not there yet share one, too. */
function hubOf(provider: MeterProvider): Hub {
  if (!isReal(provider)) {
    shared.waitingHub ??= new Hub(provider);
    return shared.waitingHub as Hub;
  }
  const known = shared.hubs.get(provider) as Hub | undefined;
  if (known !== undefined) return known;
  const hub = new Hub(provider);
  shared.hubs.set(provider, hub);
  return hub;
}

function isReal(provider: MeterProvider): boolean {
  return !isNoop(provider.getMeter(SCOPE_NAME, SCOPE_VERSION, { schemaUrl: SCHEMA_URL }));
}

/** By its name too, as each copy of the API has a meter of its own that does nothing. */
function isNoop(meter: Meter): boolean {
  return meter === createNoopMeter() || meter.constructor?.name === 'NoopMeter';
}

/** What a host gave, if it has the method that it is for. */
function having<Part extends object>(
  method: keyof Part,
  given: Part | undefined,
): Part | undefined {
  if (typeof given?.[method] === 'function') return given;
  if (given !== undefined && given !== null) {
    warnOnce(`an option is left out that has no method ${String(method)}`);
  }
  return undefined;
}

/**
 * Finds the present hub, time after time: that of a given provider, or else of the global one, which
 * may come and change. A given provider that does nothing gives way to the global one.
 */
export class HubSource {
  readonly #ownHistograms: HistogramBackend | undefined;
  #given: MeterProvider | undefined;
  #provider: MeterProvider | undefined;
  #hub: Hub | undefined;

  constructor(given?: MeterProvider, histograms?: HistogramBackend) {
    this.#ownHistograms = having('recorder', histograms);
    this.setProvider(given);
  }

  setProvider(given: MeterProvider | undefined): void {
    const provider = having('getMeter', given);
    this.#given = provider !== undefined && isReal(provider) ? provider : undefined;
  }

  get hub(): Hub {
    const provider = this.#given ?? metrics.getMeterProvider();
    if (this.#hub === undefined || provider !== this.#provider) {
      this.#provider = provider;
      this.#hub = hubOf(provider);
      if (this.#ownHistograms !== undefined && !this.#hub.isWaiting) {
        this.#hub.useHistograms(this.#ownHistograms);
      }
    }
    return this.#hub;
  }

  /** Those of the hub; while that waits it has no points, and everybody may use their own. */
  get histograms(): HistogramBackend {
    const { hub } = this;
    return hub.isWaiting ? (this.#ownHistograms ?? hub.histograms) : hub.histograms;
  }
}
