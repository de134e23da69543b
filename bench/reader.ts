import { type DataPoint, type Histogram, MetricReader } from '@opentelemetry/sdk-metrics';
import type { SignalName } from './subject.js';

/** A reader that is collected by hand. */
export class BenchReader extends MetricReader {
  /** The sum of a counter or the count of a histogram, over all attribute sets, by signal. */
  async totals(names: Readonly<Record<SignalName, string>>): Promise<Record<SignalName, number>> {
    const { resourceMetrics } = await this.collect();
    const metrics = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
    const totalOf = (name: string) =>
      metrics
        .filter(({ descriptor }) => descriptor.name === name)
        .flatMap(({ dataPoints }) => dataPoints as DataPoint<number | Histogram>[])
        .reduce((sum, { value }) => sum + (typeof value === 'number' ? value : value.count), 0);
    return Object.fromEntries(
      Object.entries(names).map(([signal, name]) => [signal, totalOf(name)]),
    ) as Record<SignalName, number>;
  }

  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}
