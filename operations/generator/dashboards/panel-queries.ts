import type { Dataquery } from '@grafana/grafana-foundation-sdk/prometheus';
import { pipelineDashboard } from './pipeline/dashboard.js';
import { stagesDashboard } from './stages/dashboard.js';

export interface PanelQuery {
  /** Title of the dashboard. */
  readonly dashboard: string;
  /** Title of the panel. */
  readonly panel: string;
  /** As it stands in the panel, with Grafana's variables in it. */
  readonly promql: string;
  /** Type of the data source that it goes to. */
  readonly datasource: string;
}

/** Every query of every panel, in the order of the panels. */
export function panelQueries(): readonly PanelQuery[] {
  return [pipelineDashboard(), stagesDashboard()].flatMap((dashboard) =>
    dashboard.panels.flatMap((panel) =>
      (('targets' in panel && panel.targets) || []).map((target) => ({
        dashboard: dashboard.title,
        panel: panel.title ?? '',
        promql: (target as Dataquery).expr,
        datasource: panel.datasource?.type ?? '',
      })),
    ),
  );
}
