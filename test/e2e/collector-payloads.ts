/** A span as a test makes it up. */
export interface HandmadeSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly durationMs?: number;
  readonly attributes?: Readonly<Record<string, string | number>>;
  readonly event?: Readonly<Record<string, string | number>>;
  /** The span failed, with this message. */
  readonly failure?: string;
}

/** A metric that a test makes up: a cumulative counter, unless its points say otherwise. */
export interface HandmadeMetric {
  readonly name: string;
  readonly unit?: string;
  readonly points: readonly {
    readonly attributes?: Readonly<Record<string, string | number>>;
    readonly value: number | ExponentialValue;
  }[];
  readonly kind?: 'sum' | 'gauge' | 'exponentialHistogram';
}

/** Of an exponential histogram: how many values are in its buckets, from an index on. */
export interface ExponentialValue {
  readonly scale: number;
  readonly sum: number;
  readonly zeros?: number;
  readonly offset: number;
  readonly counts: readonly number[];
}

type Resource = Readonly<Record<string, string>>;

/** Sends spans in OTLP's JSON. */
export function sendSpans(
  endpoint: string,
  resource: Resource,
  spans: readonly HandmadeSpan[],
): Promise<void> {
  const end = BigInt(Date.now()) * 1_000_000n;
  const encoded = spans.map(({ durationMs = 1, event, failure, ...span }) => ({
    ...span,
    kind: 1,
    startTimeUnixNano: String(end - BigInt(durationMs * 1e6)),
    endTimeUnixNano: String(end),
    attributes: encodeAttributes(span.attributes),
    ...(event && {
      events: [{ name: 'made up', timeUnixNano: String(end), attributes: encodeAttributes(event) }],
    }),
    ...(failure !== undefined && { status: { code: 2, message: failure } }),
  }));
  return post(`${endpoint}/v1/traces`, {
    resourceSpans: [
      {
        resource: { attributes: encodeAttributes(resource) },
        scopeSpans: [{ scope: { name: 'made up' }, spans: encoded }],
      },
    ],
  });
}

/** Sends metrics in OTLP's JSON. */
export function sendMetrics(
  endpoint: string,
  resource: Resource,
  metrics: readonly HandmadeMetric[],
): Promise<void> {
  const now = BigInt(Date.now()) * 1_000_000n;
  const encoded = metrics.map(({ name, unit, points, kind = 'sum' }) => ({
    name,
    unit,
    [kind]: {
      ...(kind !== 'gauge' && { aggregationTemporality: 2 }),
      ...(kind === 'sum' && { isMonotonic: true }),
      dataPoints: points.map(({ attributes, value }) => ({
        attributes: encodeAttributes(attributes),
        startTimeUnixNano: String(now - 1_000_000_000n),
        timeUnixNano: String(now),
        ...(typeof value === 'number' ? { asInt: String(value) } : encodeExponential(value)),
      })),
    },
  }));
  return post(`${endpoint}/v1/metrics`, {
    resourceMetrics: [
      {
        resource: { attributes: encodeAttributes(resource) },
        scopeMetrics: [{ scope: { name: 'made up' }, metrics: encoded }],
      },
    ],
  });
}

function encodeExponential({ scale, sum, zeros = 0, offset, counts }: ExponentialValue) {
  return {
    scale,
    sum,
    count: String(counts.reduce((total, count) => total + count, zeros)),
    zeroCount: String(zeros),
    positive: { offset, bucketCounts: counts.map(String) },
  };
}

async function post(url: string, body: object): Promise<void> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
}

function encodeAttributes(attributes: Readonly<Record<string, string | number>> = {}) {
  return Object.entries(attributes).map(([key, value]) => ({
    key,
    value: typeof value === 'string' ? { stringValue: value } : { intValue: String(value) },
  }));
}
