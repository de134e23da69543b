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

/** A counter that a test makes up. */
export interface HandmadeCounter {
  readonly name: string;
  readonly points: readonly {
    readonly value: number;
    readonly attributes?: Readonly<Record<string, string | number>>;
  }[];
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

/** Sends cumulative counters in OTLP's JSON. */
export function sendCounters(
  endpoint: string,
  resource: Resource,
  counters: readonly HandmadeCounter[],
): Promise<void> {
  const now = BigInt(Date.now()) * 1_000_000n;
  const metrics = counters.map(({ name, points }) => ({
    name,
    sum: {
      aggregationTemporality: 2,
      isMonotonic: true,
      dataPoints: points.map(({ attributes, value }) => ({
        attributes: encodeAttributes(attributes),
        startTimeUnixNano: String(now - 1_000_000_000n),
        timeUnixNano: String(now),
        asInt: String(value),
      })),
    },
  }));
  return post(`${endpoint}/v1/metrics`, {
    resourceMetrics: [
      {
        resource: { attributes: encodeAttributes(resource) },
        scopeMetrics: [{ scope: { name: 'made up' }, metrics }],
      },
    ],
  });
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
