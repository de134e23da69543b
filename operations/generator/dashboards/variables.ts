import type { Builder } from '@grafana/grafana-foundation-sdk/cog';
import {
  CustomVariableBuilder,
  DatasourceVariableBuilder,
  QueryVariableBuilder,
  type VariableModel,
  VariableRefresh,
  VariableSort,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { ATTR_LLAMA_STAGE_STAGE_INDEX } from '../../../semconv/attributes.js';
import * as I from '../../../semconv/instruments.js';
import { labelName, prometheusName } from '../prometheus-names.js';
import type { Scope } from '../promql.js';

export const PROMETHEUS = { type: 'prometheus', uid: variable('datasource') };
export const JAEGER = { type: 'jaeger', uid: variable('traces') };

export const STAGE = labelName(ATTR_LLAMA_STAGE_STAGE_INDEX);

const WORKER = 'job=~"$job", instance=~"$instance"';

export const EXPORT_INTERVAL = 'export_interval';

/** The first one is what the SDK does where nobody sets it. */
const EXPORT_INTERVALS = ['60s', '30s', '15s', '10s', '5s'] as const;

/** Of the chosen workers, over the interval that suits the panel's resolution. */
export const WINDOWS: Scope = { range: '$__rate_interval', match: WORKER };

/** The chosen stages of the chosen workers. */
export const STAGES: Scope = { ...WINDOWS, match: `${WORKER}, ${STAGE}=~"$stage"` };

const COORDINATORS = prometheusName(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT);
const COMPUTE = `${prometheusName(I.INSTRUMENT_LLAMA_STAGE_STAGE_COMPUTE_DURATION)}_count`;

/** Both dashboards have the same, so that a link from one to the other takes the choice along. */
export function variables(): Builder<VariableModel>[] {
  return [
    new DatasourceVariableBuilder('datasource')
      .label('Metrics')
      .description('The Prometheus that has the metrics.')
      .type(PROMETHEUS.type),
    new DatasourceVariableBuilder('traces')
      .label('Traces')
      .description('The Jaeger that the links to traces lead to.')
      .type(JAEGER.type),
    several('job', 'Job')
      .description(
        'Services. Coordinators and stages are services of their own: choose those of one chain together.',
      )
      .query(labelValues(`{__name__=~"${COORDINATORS}|${COMPUTE}"}`, 'job')),
    several('instance', 'Instance')
      .description('Single processes of the services.')
      .query(labelValues(`{__name__=~"${COORDINATORS}|${COMPUTE}", job=~"$job"}`, 'instance')),
    several('stage', 'Stage')
      .description('Places in the chain; 0 is the coordinator. Only for panels about stages.')
      .query(labelValues(`${COMPUTE}{${WORKER}}`, STAGE))
      .sort(VariableSort.NumericalAsc),
    new CustomVariableBuilder(EXPORT_INTERVAL)
      .label('Export interval')
      .description(
        'How often workers export or are scraped. Rates are over at least four of these, whatever the data source says.',
      )
      .values(EXPORT_INTERVALS.join(','))
      .current({ selected: true, text: EXPORT_INTERVALS[0], value: EXPORT_INTERVALS[0] })
      .options(
        EXPORT_INTERVALS.map((value, index) => ({ text: value, value, selected: index === 0 })),
      ),
    asked('coordinator', 'Traced service')
      .description('The coordinator whose traces the links search.')
      .query(labelValues(COORDINATORS, 'job'))
      // A job is `namespace/name` where the service has a namespace; Jaeger knows the name.
      .regex('/([^\\/]+)$/'),
  ];
}

/** All of them unless some are chosen; `.*` stays short however many there are. */
function several(name: string, label: string): QueryVariableBuilder {
  return asked(name, label)
    .multi(true)
    .includeAll(true)
    .allValue('.*')
    .current({ selected: true, text: ['All'], value: ['$__all'] });
}

function asked(name: string, label: string): QueryVariableBuilder {
  return new QueryVariableBuilder(name)
    .label(label)
    .datasource(PROMETHEUS)
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .sort(VariableSort.NaturalAsc);
}

function labelValues(series: string, label: string): string {
  return `label_values(${series}, ${label})`;
}

/** Where Grafana puts in the value of a variable. */
export function variable(name: string): string {
  return `\${${name}}`;
}
