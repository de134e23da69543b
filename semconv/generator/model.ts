/** What the registry says, checked and with its references followed. */
export interface Registry {
  readonly attributes: readonly Attribute[];
  readonly metrics: readonly Metric[];
  readonly spans: readonly Span[];
  readonly events: readonly SpanEvent[];
  readonly entities: readonly Entity[];
  /** In the order of the response timings. */
  readonly figures: readonly Figure[];
}

export interface Attribute {
  readonly name: string;
  /** As the registry spells it; an enum is a `string`. */
  readonly type: string;
  readonly brief: string;
  readonly note: string;
  readonly examples: readonly unknown[];
  readonly values: readonly AttributeValue[];
  /** OpenTelemetry defines it, and this registry only refers to it. */
  readonly upstream: boolean;
}

export interface AttributeValue {
  readonly value: string;
  readonly brief: string;
}

/** A figure of one generation: what a statistic, a response timing and an attribute tell alike. */
export interface Figure {
  readonly attribute: Attribute;
  /** Last part of the id of the group that defines the attribute. */
  readonly group: string;
  /** Name of the statistics' field. */
  readonly statistic: string;
  readonly timing: string;
  readonly kind: FigureKind;
  /** It follows from other figures. */
  readonly derived: boolean;
  /** The timing that holds where this one does or another part of it; empty for most. */
  readonly partOf: string;
  /** What a later version of the workers brought, and the figure with it; empty for most. */
  readonly introducedWith: string;
}

export type FigureKind = 'count' | 'ms' | 'fraction' | 'average' | 'boolean' | 'ms_by_level';

export interface Metric {
  readonly name: string;
  readonly instrument: Instrument;
  readonly unit: string;
  readonly brief: string;
  readonly note: string;
  readonly valueType: 'int' | 'double';
  readonly asynchronous: boolean;
  readonly questions: readonly number[];
  /** Of a histogram; empty for every other instrument. */
  readonly bucketBoundaries: readonly number[];
  readonly attributes: readonly AttributeUse[];
  readonly upstream: boolean;
  /** What it reads of a scheduler's counts, where it reads one field of them as it is. */
  readonly count: Count | undefined;
}

export interface Count {
  /** Name of the field; `1` where each scheduler counts as one. */
  readonly field: string | 1;
  /** The attribute whose values are the keys of the field, if it is a record. */
  readonly attribute: Attribute | undefined;
  /** The field holds milliseconds, the metric is in seconds. */
  readonly isMs: boolean;
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
  readonly note: string;
  readonly attributes: readonly AttributeUse[];
}

/** What a resource describes. */
export interface Entity {
  readonly name: string;
  readonly brief: string;
  readonly attributes: readonly AttributeUse[];
}
