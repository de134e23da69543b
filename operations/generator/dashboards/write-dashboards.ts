import { pipelineDashboard } from './pipeline/dashboard.js';
import { stagesDashboard } from './stages/dashboard.js';

/** The dashboards as text, each with its path below `operations`. */
export function writeDashboards(): readonly [path: string, text: string][] {
  return [
    ['grafana/pipeline.json', textOf(pipelineDashboard())],
    ['grafana/stages.json', textOf(stagesDashboard())],
  ];
}

function textOf(dashboard: object): string {
  return `${JSON.stringify(dashboard, undefined, 2)}\n`;
}
