import { MetricReader, type ResourceMetrics } from '@opentelemetry/sdk-metrics';

/** The table at the end is made of the same metrics that the exporters hand out. */
export class TableReader extends MetricReader {
  /** What an exporter would get at this moment. */
  async read(): Promise<ResourceMetrics> {
    const { resourceMetrics, errors } = await this.collect();
    if (errors.length > 0) throw errors[0];
    return resourceMetrics;
  }

  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}
