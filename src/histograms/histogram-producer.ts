import type { Attributes } from '@opentelemetry/api';
import {
  AggregationTemporality,
  AggregationType,
  type CollectionResult,
  DataPointType,
  type ExponentialHistogramMetricData,
  type HistogramMetricData,
  InstrumentType,
  type MetricProducer,
  type PushMetricExporter,
} from '@opentelemetry/sdk-metrics';
import type { HistogramInstrument } from '../../semconv/instruments.js';
import { SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION } from '../guard.js';
import { ExplicitBuckets } from './explicit-buckets.js';
import { ExponentialBuckets } from './exponential-buckets.js';
import { type HistogramPoint, Point, type PointSource } from './point.js';

/** Buckets of an exponential histogram, unless the aggregation says otherwise; the SDK's default. */
const DEFAULT_MAX_SIZE = 160;

/** The aggregations that make a histogram, as a reader's exporter or a view names them. */
export type HistogramAggregation = ReturnType<NonNullable<PushMetricExporter['selectAggregation']>>;

export interface HistogramProducerOptions {
  /** The exporter of the reader: what it prefers for histograms is followed. */
  readonly exporter?: Pick<
    PushMetricExporter,
    'selectAggregation' | 'selectAggregationTemporality'
  >;
  /** Cumulative or delta, whatever the exporter prefers. Default: cumulative. */
  readonly temporality?: AggregationTemporality;
  /**
   * Explicit or exponential buckets, or none (`DROP`), whatever the exporter prefers. Default:
   * explicit, with the boundaries of the conventions.
   */
  readonly aggregation?: HistogramAggregation;
  /**
   * Explicit boundaries by the name of a metric, in its unit and rising, in place of those of the
   * conventions: for a pipeline that is deeper, or whose windows take longer.
   */
  readonly boundaries?: Readonly<Record<string, readonly number[]>>;
}

/** Hands the pre-aggregated histograms to one reader. */
export class HistogramProducer implements MetricProducer, PointSource {
  readonly #temporality: AggregationTemporality;
  readonly #aggregation: HistogramAggregation;
  readonly #boundaries: ReadonlyMap<string, readonly number[]>;
  readonly #flush: () => void;
  readonly #points = new Map<HistogramInstrument, Point[]>();
  #lastCollectionMs = 0;

  /** Use {@link PreaggregatedHistograms.producer}. */
  constructor(options: HistogramProducerOptions, flush: () => void) {
    const { exporter } = options;
    this.#temporality =
      options.temporality ??
      exporter?.selectAggregationTemporality?.(InstrumentType.HISTOGRAM) ??
      AggregationTemporality.CUMULATIVE;
    this.#aggregation = checked(
      options.aggregation ??
        exporter?.selectAggregation?.(InstrumentType.HISTOGRAM) ?? {
          type: AggregationType.DEFAULT,
        },
    );
    this.#boundaries = new Map(
      Object.entries(options.boundaries ?? {}).map(([name, own]) => [name, rising(name, own)]),
    );
    this.#flush = flush;
  }

  /** Makes this reader's point of a recorder; `undefined` where its aggregation drops histograms. */
  addPoint(instrument: HistogramInstrument, attributes: Attributes): Point | undefined {
    const aggregation = this.#aggregation;
    if (aggregation.type === AggregationType.DROP) return undefined;
    const ownBoundaries = instrument.options.advice.explicitBucketBoundaries;
    const boundaries =
      this.#boundaries.get(instrument.name) ??
      ((aggregation.type === AggregationType.EXPLICIT_BUCKET_HISTOGRAM &&
        aggregation.options?.boundaries) ||
        ownBoundaries);
    const options = 'options' in aggregation ? aggregation.options : undefined;
    const point = new Point({
      attributes,
      isCumulative: this.#temporality === AggregationTemporality.CUMULATIVE,
      recordMinMax: options?.recordMinMax ?? true,
      isDirect: boundaries !== ownBoundaries || isExponential(aggregation),
      createBuckets: () =>
        aggregation.type === AggregationType.EXPONENTIAL_HISTOGRAM
          ? new ExponentialBuckets(aggregation.options?.maxSize ?? DEFAULT_MAX_SIZE)
          : new ExplicitBuckets(boundaries),
    });
    const points = this.#points.get(instrument) ?? [];
    points.push(point);
    this.#points.set(instrument, points);
    return point;
  }

  /** Called by the reader. Takes no time to wait for, so a timeout is never met. */
  async collect(): Promise<CollectionResult> {
    this.#flush();
    const nowMs = Date.now();
    const metrics = [...this.#points].flatMap(([instrument, points]) => {
      const dataPoints = points
        .map((point) => point.collect(nowMs, this.#lastCollectionMs))
        .filter((point) => point !== undefined);
      return dataPoints.length === 0 ? [] : [this.#metric(instrument, dataPoints)];
    });
    this.#lastCollectionMs = nowMs;
    const scope = { name: SCOPE_NAME, version: SCOPE_VERSION, schemaUrl: SCHEMA_URL };
    return {
      resourceMetrics: {
        resource: NO_RESOURCE,
        scopeMetrics: metrics.length === 0 ? [] : [{ scope, metrics }],
      },
      errors: [],
    };
  }

  #metric(instrument: HistogramInstrument, dataPoints: HistogramPoint[]) {
    const { description, unit, valueType } = instrument.options;
    return {
      // The SDK's own metrics carry the type and the advice of the instrument here, too.
      descriptor: { name: instrument.name, description, unit, valueType },
      aggregationTemporality: this.#temporality,
      dataPointType: isExponential(this.#aggregation)
        ? DataPointType.EXPONENTIAL_HISTOGRAM
        : DataPointType.HISTOGRAM,
      dataPoints,
    } as HistogramMetricData | ExponentialHistogramMetricData;
  }
}

/** The reader puts the resource of its provider in the place of this one. */
const NO_RESOURCE: CollectionResult['resourceMetrics']['resource'] = {
  attributes: {},
  merge: (other) => other ?? NO_RESOURCE,
  getRawAttributes: () => [],
};

/** A copy of boundaries that are finite, and rise. */
function rising(name: string, boundaries: readonly number[]): readonly number[] {
  // In a copy a hole is a value too.
  const own = Array.isArray(boundaries) ? [...boundaries] : [Number.NaN];
  if (!own.every((boundary, i) => Number.isFinite(boundary) && !(boundary <= own[i - 1]))) {
    throw new RangeError(`the boundaries of ${name} must be finite numbers that rise`);
  }
  return own;
}

function isExponential({ type }: HistogramAggregation): boolean {
  return type === AggregationType.EXPONENTIAL_HISTOGRAM;
}

function checked(aggregation: HistogramAggregation): HistogramAggregation {
  const { type } = aggregation;
  if (type === AggregationType.SUM || type === AggregationType.LAST_VALUE) {
    throw new RangeError(
      `the aggregation of a histogram must be DEFAULT, DROP, EXPLICIT_BUCKET_HISTOGRAM or EXPONENTIAL_HISTOGRAM, got ${AggregationType[type]}`,
    );
  }
  if (type !== AggregationType.EXPONENTIAL_HISTOGRAM) return aggregation;
  const maxSize = aggregation.options?.maxSize ?? DEFAULT_MAX_SIZE;
  if (!Number.isInteger(maxSize) || maxSize < 2) {
    throw new RangeError(
      `maxSize of an exponential histogram must be an integer of at least 2, got ${maxSize}`,
    );
  }
  return aggregation;
}
