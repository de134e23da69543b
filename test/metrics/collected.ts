import type { Attributes } from '@opentelemetry/api';
import {
  AggregationTemporality,
  type CollectionResult,
  type DataPoint,
  type Histogram,
  MeterProvider,
  MetricReader,
} from '@opentelemetry/sdk-metrics';

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
