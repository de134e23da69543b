import type { Attribute, Metric, Registry } from './model.js';
import {
  attributeConstant,
  eventConstant,
  metricConstant,
  spanConstant,
  valueConstant,
} from './names.js';
import { docComment, HEADER, stringConstant } from './source-text.js';

export function writeAttributes(registry: Registry): string {
  return file(registry.attributes.flatMap((attribute) => [key(attribute), ...values(attribute)]));
}

function key(attribute: Attribute): string {
  const examples = attribute.examples.map((example) => `@example ${JSON.stringify(example)}`);
  return constant(attributeConstant(attribute.name), attribute.name, [
    attribute.brief,
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

export function writeMetrics(registry: Registry): string {
  return file(
    registry.metrics.map((metric) =>
      constant(metricConstant(metric.name), metric.name, [
        metric.brief,
        `${metricKind(metric)}, in \`${metric.unit}\`.`,
        ...origin(metric),
      ]),
    ),
  );
}

function metricKind({ asynchronous, instrument }: Metric): string {
  const name = asynchronous ? `asynchronous ${instrument}` : instrument;
  return name.charAt(0).toUpperCase() + name.slice(1);
}

export function writeSpans(registry: Registry): string {
  return file([
    ...registry.spans.map((span) =>
      constant(spanConstant(span.name), span.name, [
        [span.brief, span.note].filter((text) => text !== '').join(' '),
        `Span kind: ${span.kind}.`,
      ]),
    ),
    ...registry.events.map((event) =>
      constant(eventConstant(event.name), event.name, [event.brief]),
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
