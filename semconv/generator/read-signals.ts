import type { Fields } from './fields.js';
import type { Attribute, AttributeUse, Entity, Metric, Span, SpanEvent } from './model.js';
import { checkName, checkOwnName } from './names.js';
import { readCount } from './read-count.js';

type Uses = readonly AttributeUse[];

const INSTRUMENTS = ['counter', 'updowncounter', 'gauge', 'histogram'] as const;
const VALUE_TYPES = ['int', 'double'] as const;
const SPAN_KINDS = ['internal', 'client', 'server', 'producer', 'consumer'];

export function readMetric(
  group: Fields,
  attributes: Uses,
  known: ReadonlyMap<string, Attribute>,
): Metric {
  const name = group.text('metric_name');
  checkOwnName(name, group);
  const own = group.nested('annotations', 'llama_stage');
  const metric = checked(
    {
      name,
      instrument: group.oneOf('instrument', INSTRUMENTS),
      unit: group.text('unit'),
      brief: group.text('brief'),
      note: group.optionalText('note'),
      valueType: group
        .nested('annotations', 'code_generation')
        .oneOf('metric_value_type', VALUE_TYPES),
      asynchronous: own.boolean('asynchronous'),
      questions: own.numbers('questions'),
      bucketBoundaries: own.numbers('bucket_boundaries'),
      attributes,
      upstream: false,
      count: undefined,
    },
    group,
  );
  return own.has('count') ? { ...metric, count: readCount(own, metric, known) } : metric;
}

export function readUpstreamMetric(definition: Fields, attributes: Uses): Metric {
  const name = definition.text('name');
  const fields = definition.at(`${definition.place}: metric ${name}`);
  checkName(name, fields);
  return checked(
    {
      name,
      instrument: fields.oneOf('instrument', INSTRUMENTS),
      unit: fields.text('unit'),
      brief: fields.text('brief'),
      note: '',
      valueType: fields.oneOf('value_type', VALUE_TYPES),
      asynchronous: false,
      questions: fields.numbers('questions'),
      bucketBoundaries: fields.numbers('bucket_boundaries'),
      attributes,
      upstream: true,
      count: undefined,
    },
    fields,
  );
}

function checked(metric: Metric, place: Fields): Metric {
  const { bucketBoundaries: boundaries, instrument, questions } = metric;
  if ((instrument === 'histogram') !== boundaries.length > 0) {
    place.fail('bucket_boundaries belong to a histogram, and to nothing else');
  }
  if (boundaries.some((boundary, i) => i > 0 && boundary <= Number(boundaries[i - 1]))) {
    place.fail('bucket_boundaries do not rise');
  }
  if (instrument === 'histogram' && metric.asynchronous) {
    place.fail('a histogram cannot be asynchronous');
  }
  if (questions.some((question) => !Number.isInteger(question) || question < 1 || question > 9)) {
    place.fail('questions are numbered from 1 to 9');
  }
  return metric;
}

export function readSpan(
  group: Fields,
  attributes: Uses,
  events: ReadonlyMap<string, SpanEvent>,
): Span {
  const kind = group.oneOf('span_kind', SPAN_KINDS);
  const name = spanName(group, kind);
  checkOwnName(name, group);
  return {
    name,
    kind,
    brief: group.text('brief'),
    note: group.optionalText('note'),
    attributes,
    events: group
      .texts('events')
      .map((id) => events.get(id)?.name ?? group.fail(`there is no event ${id}`)),
  };
}

export function readEvent(group: Fields, attributes: Uses): SpanEvent {
  const name = group.text('name');
  checkOwnName(name, group);
  return { name, brief: group.text('brief'), note: group.optionalText('note'), attributes };
}

/** A span group has no field for the name: by convention its id is `span.{name}.{kind}`. */
function spanName(group: Fields, kind: string): string {
  const [id, prefix, suffix] = [group.text('id'), 'span.', `.${kind}`];
  if (!id.startsWith(prefix) || !id.endsWith(suffix)) {
    group.fail(`the id of a span of kind ${kind} must be span.{name}${suffix}`);
  }
  return id.slice(prefix.length, -suffix.length);
}

export function readEntity(group: Fields, attributes: Uses): Entity {
  const name = group.text('name');
  checkOwnName(name, group);
  return { name, brief: group.text('brief'), attributes };
}
