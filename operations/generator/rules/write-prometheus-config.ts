import { stringify } from 'yaml';
import { relabelScraped } from '../relabel.js';
import { PROMOTED_ATTRIBUTES } from './resource-labels.js';

const HEADER = `\
# Generated from operations/generator: do not edit.
#
# Workers either push or are scraped. One that does both is counted twice.
#
# Push: start Prometheus with --web.enable-otlp-receiver, and let the workers or a Collector export
# to /api/v1/otlp/v1/metrics. service.name becomes the label job, service.instance.id instance. A
# Collector that could not send tries again for some minutes, so points may come late.
#
# Scrape: list the workers in files of the folder workers/, next to this one. The labels have to say
# what the resource says over OTLP; service_namespace tells several deployments apart. Series get the
# names and buckets that they have over OTLP.
#
#   - targets: ['127.0.0.1:9464']
#     labels: { job: llama-stage-coordinator }
#   - targets: ['127.0.0.1:9465']
#     labels: { job: llama-stage-1 }
`;

/** Prometheus' configuration, for workers that push and for workers that are scraped. */
export function writePrometheusConfig(): string {
  const config = {
    global: { scrape_interval: '15s', evaluation_interval: '15s' },
    rule_files: ['rules.yaml'],
    otlp: {
      // Dashboards and rules use these names.
      translation_strategy: 'UnderscoreEscapingWithSuffixes',
      promote_resource_attributes: PROMOTED_ATTRIBUTES,
    },
    storage: { tsdb: { out_of_order_time_window: '10m' } },
    scrape_configs: [
      {
        job_name: 'llama-stage-workers',
        file_sd_configs: [{ files: ['workers/*.yaml'] }],
        metric_relabel_configs: relabelScraped(),
      },
    ],
  };
  return `${HEADER}${stringify(config)}`;
}
