import type { Builder } from '@grafana/grafana-foundation-sdk/cog';
import {
  type Dashboard,
  DashboardBuilder,
  DashboardCursorSync,
  DashboardLinkBuilder,
  DashboardLinkType,
  type Panel,
  RowBuilder,
  type RowPanel,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { variables } from './variables.js';

/** By which the dashboards find each other. */
const TAG = 'llama-stage';

/** What Grafana 11 saves; later ones migrate from it. The SDK writes that of Grafana 12. */
const SCHEMA_VERSION = 39;

const GRID_WIDTH = 24;

export interface Row {
  readonly title: string;
  readonly panels: readonly Builder<Panel>[];
}

export interface DashboardParts {
  readonly uid: string;
  readonly title: string;
  readonly description: string;
  readonly rows: readonly Row[];
}

export type AssembledDashboard = Dashboard & {
  readonly title: string;
  readonly panels: readonly (Panel | RowPanel)[];
};

/** A dashboard in the JSON model that Grafana imports. */
export function assemble({ uid, title, description, rows }: DashboardParts): AssembledDashboard {
  const dashboard = new DashboardBuilder(title)
    .uid(uid)
    .description(description)
    .tags([TAG])
    .time({ from: 'now-1h', to: 'now' })
    .refresh('30s')
    .tooltip(DashboardCursorSync.Crosshair)
    .variables(variables())
    .annotations([])
    .links([
      new DashboardLinkBuilder('Other dashboards of the pipeline')
        .type(DashboardLinkType.Dashboards)
        .tags([TAG])
        .keepTime(true)
        .includeVars(true),
    ])
    .build();
  return { ...dashboard, title, schemaVersion: SCHEMA_VERSION, panels: layOut(rows) };
}

/** Panels from left to right, and below where there is no more room; numbered in that order. */
function layOut(rows: readonly Row[]): (Panel | RowPanel)[] {
  const placed: (Panel | RowPanel)[] = [];
  let y = 0;
  for (const { title, panels } of rows) {
    const row = new RowBuilder(title).id(placed.length + 1);
    placed.push(row.gridPos({ h: 1, w: GRID_WIDTH, x: 0, y }).build());
    y++;
    let x = 0;
    let height = 0;
    for (const panel of panels.map((builder) => builder.build())) {
      const { w = 0, h = 0 } = panel.gridPos ?? {};
      if (x + w > GRID_WIDTH) {
        x = 0;
        y += height;
        height = 0;
      }
      placed.push({ ...panel, id: placed.length + 1, gridPos: { h, w, x, y } });
      x += w;
      height = Math.max(height, h);
    }
    y += height;
  }
  return placed;
}
