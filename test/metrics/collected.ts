import type { Attributes } from '@opentelemetry/api';
import {
  AggregationTemporality,
  type CollectionResult,
  type DataPoint,
  type Histogram,
  MeterProvider,
  MetricReader,
} from '@opentelemetry/sdk-metrics';
import { expect } from 'vitest';

/** A real reader that is collected by hand, and hands over what an exporter would get. */
export class ManualReader extends MetricReader {
  static delta(): ManualReader {
    return new ManualReader({
      aggregationTemporalitySelector: () => AggregationTemporality.DELTA,
    });
  }

  async read(): Promise<Collected> {
    const result = await this.collect();
    if (result.errors.length > 0) throw result.errors[0];
    return new Collected(result);
  }

  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

export function providerWith(...readers: MetricReader[]): MeterProvider {
  return new MeterProvider({ readers });
}

export class Collected {
  readonly result: CollectionResult;

  constructor(result: CollectionResult) {
    this.result = result;
  }

  get names(): string[] {
    return this.#metrics().map((metric) => metric.descriptor.name);
  }

  metric(name: string) {
    return this.#metrics().find((metric) => metric.descriptor.name === name);
  }

  points(name: string): DataPoint<number>[] {
    return (this.metric(name)?.dataPoints ?? []) as DataPoint<number>[];
  }

  /** The sum of all points of a metric that carry these attributes. */
  sum(name: string, attributes: Attributes = {}): number {
    return this.points(name)
      .filter((point) => has(point.attributes, attributes))
      .reduce((total, point) => total + point.value, 0);
  }

  histogram(name: string): DataPoint<Histogram>[] {
    return (this.metric(name)?.dataPoints ?? []) as DataPoint<Histogram>[];
  }

  /** How many values a histogram holds, over all its points. */
  count(name: string): number {
    return this.histogram(name).reduce((total, point) => total + point.value.count, 0);
  }

  #metrics() {
    return this.result.resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
  }
}

function has(actual: Attributes, wanted: Attributes): boolean {
  return Object.entries(wanted).every(([key, value]) => actual[key] === value);
}

/** The value of each counter's series. */
export function counterValues(collected: Collected): Map<string, number> {
  const values = new Map<string, number>();
  for (const name of collected.names) {
    const metric = collected.metric(name);
    if (metric === undefined || !('isMonotonic' in metric) || !metric.isMonotonic) continue;
    for (const point of collected.points(name)) {
      values.set(`${name} ${JSON.stringify(point.attributes)}`, point.value);
    }
  }
  return values;
}

/** That no counter fell since. @returns what is now. */
export function expectNoneFell(
  now: Map<string, number>,
  before: Map<string, number>,
): Map<string, number> {
  // One expectation for all: there may be thousands of series.
  const fallen = [...before].filter(([series, value]) => !((now.get(series) ?? -1) >= value));
  expect(fallen.map(([series, value]) => [series, value, now.get(series)])).toEqual([]);
  return now;
}

/** That each series is there once, as backends take only one point of it. */
export function expectOnePointForEachSeries(collected: Collected): void {
  for (const name of collected.names) {
    const series = collected
      .points(name)
      .map(({ attributes }) => JSON.stringify(Object.entries(attributes).sort()));
    expect(new Set(series).size, name).toBe(series.length);
  }
  expect(new Set(collected.names).size).toBe(collected.names.length);
}
