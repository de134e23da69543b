import { DashboardLinkBuilder, DashboardLinkType } from '@grafana/grafana-foundation-sdk/dashboard';
import { SPAN_LLAMA_STAGE_GENERATION } from '../../../semconv/spans.js';
import { JAEGER, variable } from './variables.js';

const VARIABLE = /%24%7B(.*?)%7D/g;

/** To the generations of the panel's time; a trace has every stage and window of one. */
export function generationTraces(): DashboardLinkBuilder {
  return traces(
    'Traces of this time',
    variable('coordinator:percentencode'),
    SPAN_LLAMA_STAGE_GENERATION,
  ).tooltip('The generations of this time in Jaeger, with every window and stage of each');
}

/** To the traces of the panel's time in which a service has an operation; opens Explore. */
export function traces(title: string, service: string, operation: string): DashboardLinkBuilder {
  const panes = {
    traces: {
      datasource: JAEGER.uid,
      queries: [{ refId: 'A', datasource: JAEGER, queryType: 'search', service, operation }],
      range: { from: variable('__from'), to: variable('__to') },
    },
  };
  // Grafana fills variables in before it decodes the address, so they have to stay as they are.
  const encoded = encodeURIComponent(JSON.stringify(panes)).replaceAll(
    VARIABLE,
    (_, name: string) => variable(decodeURIComponent(name)),
  );
  return new DashboardLinkBuilder(title)
    .type(DashboardLinkType.Link)
    .url(`/explore?schemaVersion=1&panes=${encoded}`)
    .targetBlank(true);
}
