import type { Attribute, Metric, Registry } from './model.js';
import {
  attributeConstant,
  eventConstant,
  metricConstant,
  spanConstant,
  valueConstant,
  valuesConstant,
} from './names.js';
import { docComment, HEADER, stringConstant, stringsConstant, textOf } from './source-text.js';

export function writeAttributes(registry: Registry): string {
  return file(
    registry.attributes.flatMap((attribute) => [
      key(attribute),
      ...values(attribute),
      ...allValues(attribute),
    ]),
  );
}

function key(attribute: Attribute): string {
  const examples = attribute.examples.map((example) => `@example ${JSON.stringify(example)}`);
  return constant(attributeConstant(attribute.name), attribute.name, [
    textOf(attribute),
    ...origin(attribute),
    ...examples,
  ]);
}

function values(attribute: Attribute): readonly string[] {
  const owner = attributeConstant(attribute.name);
  return attribute.values.map(({ value, brief }) =>
    constant(valueConstant(attribute.name, value), value, [`Value of {@link ${owner}}: ${brief}`]),
  );
}

/** Where the values are known, all of them, in the order of the registry. */
function allValues({ name, values }: Attribute): readonly string[] {
  if (values.length === 0) return [];
  const list = stringsConstant(
    valuesConstant(name),
    values.map(({ value }) => value),
  );
  return [`${docComment([`All values of {@link ${attributeConstant(name)}}.`])}\n${list}\n`];
}

export function writeMetrics(registry: Registry): string {
  return file(
    registry.metrics.map((metric) =>
      constant(metricConstant(metric.name), metric.name, [
        textOf(metric),
        `${capitalized(metricKind(metric))}, in \`${metric.unit}\`.`,
        ...origin(metric),
      ]),
    ),
  );
}

export function metricKind({ asynchronous, instrument }: Metric): string {
  return asynchronous ? `asynchronous ${instrument}` : instrument;
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function writeSpans(registry: Registry): string {
  return file([
    ...registry.spans.map((span) =>
      constant(spanConstant(span.name), span.name, [textOf(span), `Span kind: ${span.kind}.`]),
    ),
    ...registry.events.map((event) =>
      constant(eventConstant(event.name), event.name, [textOf(event)]),
    ),
  ]);
}

function origin({ upstream }: { readonly upstream: boolean }): readonly string[] {
  return upstream ? ["Defined by OpenTelemetry's own semantic conventions."] : [];
}

function constant(name: string, value: string, doc: readonly string[]): string {
  return `${docComment(doc)}\n${stringConstant(name, value)}\n`;
}

function file(constants: readonly string[]): string {
  return [HEADER, ...constants].join('\n');
}
