import { gzipSync } from 'node:zlib';

import { ProtobufMetricsSerializer } from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  type Histogram,
  MeterProvider,
  MetricReader,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics';
import {
  type GenerationOptions,
  GenerationTelemetry,
  StageTelemetry,
  VerifyWindowMetrics,
  type VerifyWindowScheduler,
} from 'llama-stage-otel';
import { ATTR_GEN_AI_REQUEST_MODEL } from 'llama-stage-otel/semconv';

/** What one collection of a worker comes to. */
export interface Export {
  /** As Prometheus keeps them: each bucket of a histogram is a series, and so are sum and count. */
  readonly series: number;
  /** The same with native histograms, of which each is one. */
  readonly nativeSeries: number;
  /** Bytes over OTLP, in Protobuf. */
  readonly bytes: number;
  readonly gzipBytes: number;
}

class CollectedByHand extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

/**
 * What a coordinator exports whose schedulers have this depth and so many attribute sets. It is
 * stage 0 too.
 */
export function coordinatorMetrics(
  depth: number,
  sets: number,
  id = 'worker',
): Promise<ResourceMetrics> {
  return collect(id, async (meterProvider) => {
    passThrough(0, meterProvider);
    const metrics = new VerifyWindowMetrics({ meterProvider });
    const generations = new GenerationTelemetry({ meterProvider, metrics });
    for (let set = 0; set < sets; set++) {
      const model = `model-${set}`;
      const metricAttributes = { [ATTR_GEN_AI_REQUEST_MODEL]: model };
      const options: GenerationOptions = { depth, requestModel: model, metricAttributes };
      await generations.run(options, ({ scheduler, tokensCommitted }) => {
        verifyOne(scheduler);
        tokensCommitted(1);
        tokensCommitted(4);
      });
    }
  });
}

/** What the process of one later stage exports. */
export function stageMetrics(id = 'stage'): Promise<ResourceMetrics> {
  return collect(id, async (meterProvider) => passThrough(1, meterProvider));
}

export function measureExport(metrics: ResourceMetrics): Export {
  const body = encode(metrics);
  const points = metrics.scopeMetrics
    .flatMap((scope) => scope.metrics)
    .flatMap(({ dataPoints }) => dataPoints.map(({ value }) => value as number | Histogram));
  return {
    series: points.reduce<number>(
      (sum, value) => sum + (typeof value === 'number' ? 1 : value.buckets.counts.length + 2),
      0,
    ),
    nativeSeries: points.length,
    bytes: body.length,
    gzipBytes: gzipSync(body).length,
  };
}

export function encode(metrics: ResourceMetrics): Uint8Array<ArrayBuffer> {
  return new Uint8Array(ProtobufMetricsSerializer.serializeRequest(metrics) ?? []);
}

async function collect(
  id: string,
  work: (meterProvider: MeterProvider) => Promise<void>,
): Promise<ResourceMetrics> {
  const reader = new CollectedByHand();
  const resource = resourceFromAttributes({ 'service.name': 'scale', 'service.instance.id': id });
  await work(new MeterProvider({ readers: [reader], resource }));
  const { resourceMetrics } = await reader.collect();
  return resourceMetrics;
}

/** One window in a stage: brings the histograms of all phases to life. */
function passThrough(index: number, meterProvider: MeterProvider): void {
  new StageTelemetry({ index, meterProvider }).window(undefined, (window) => {
    window.compute(() => {});
    window.forwardWrite(() => {});
    window.downstreamWait(() => {});
  });
}

/** Brings every histogram to life; counters are there with all their values from the start. */
function verifyOne(scheduler: VerifyWindowScheduler): void {
  const window = scheduler.open(0, 0);
  scheduler.completeNext(window.id, { proposedTokens: 4, acceptedTokens: 3 });
}
