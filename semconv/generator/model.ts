/** What the registry says, checked and with its references followed. */
export interface Registry {
  readonly attributes: readonly Attribute[];
  readonly metrics: readonly Metric[];
  readonly spans: readonly Span[];
  readonly events: readonly SpanEvent[];
  readonly entities: readonly Entity[];
}

export interface Attribute {
  readonly name: string;
  /** As the registry spells it; an enum is a `string`. */
  readonly type: string;
  readonly brief: string;
  readonly examples: readonly unknown[];
  readonly values: readonly AttributeValue[];
  /** OpenTelemetry defines it, and this registry only refers to it. */
  readonly upstream: boolean;
}

export interface AttributeValue {
  readonly value: string;
  readonly brief: string;
}

export interface Metric {
  readonly name: string;
  readonly instrument: Instrument;
  readonly unit: string;
  readonly brief: string;
  readonly valueType: 'int' | 'double';
  readonly asynchronous: boolean;
  readonly questions: readonly number[];
  /** Of a histogram; empty for every other instrument. */
  readonly bucketBoundaries: readonly number[];
  readonly attributes: readonly AttributeUse[];
  readonly upstream: boolean;
}

export type Instrument = 'counter' | 'updowncounter' | 'gauge' | 'histogram';

export interface AttributeUse {
  readonly name: string;
  /** `required`, `recommended`, or `conditionally required: ` and the condition. */
  readonly level: string;
}

export interface Span {
  readonly name: string;
  readonly kind: string;
  readonly brief: string;
  readonly note: string;
  readonly attributes: readonly AttributeUse[];
  readonly events: readonly string[];
}

export interface SpanEvent {
  readonly name: string;
  readonly brief: string;
  readonly attributes: readonly AttributeUse[];
}

/** What a resource describes. */
export interface Entity {
  readonly name: string;
  readonly brief: string;
  readonly attributes: readonly AttributeUse[];
}
