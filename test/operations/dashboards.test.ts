import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Panel } from '@grafana/grafana-foundation-sdk/dashboard';
import { describe, expect, it } from 'vitest';
import type { AssembledDashboard } from '../../operations/generator/dashboards/assemble.js';
import { panelQueries } from '../../operations/generator/dashboards/panel-queries.js';
import { pipelineDashboard } from '../../operations/generator/dashboards/pipeline/dashboard.js';
import { stagesDashboard } from '../../operations/generator/dashboards/stages/dashboard.js';
import { writeDashboards } from '../../operations/generator/dashboards/write-dashboards.js';
import { labelName, prometheusName } from '../../operations/generator/prometheus-names.js';
import * as attributes from '../../semconv/attributes.js';
import * as instruments from '../../semconv/instruments.js';

const OPERATIONS = join(import.meta.dirname, '../../operations');

const QUESTIONS = [
  'Did it raise the output rate?',
  'Did it cut the exposed latency?',
  'Was the queue actually full?',
  'Were the stages busy at the same time?',
  'Was the network delay hidden?',
  'What was wasted?',
  'Did the candidates stay useful?',
  'Did the horizon stay supplied?',
  'Was the output right?',
];

/** Names that Grafana fills in by itself. */
const BUILT_IN = ['__rate_interval', '__from', '__to', '__data', '__all'];

const dashboards: [string, AssembledDashboard][] = [
  ['Pipeline', pipelineDashboard()],
  ['Stages', stagesDashboard()],
];

/** What Prometheus keeps, each series with the name of its instrument. */
const series = new Map(
  Object.values(instruments).flatMap((instrument) => {
    const suffixes = instrument.kind === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    return suffixes.map(
      (suffix) => [prometheusName(instrument) + suffix, instrument.name] as const,
    );
  }),
);

const labels = Object.values(attributes)
  .filter((value) => typeof value === 'string')
  .map(labelName);

/** Every name in a text that has the form of the registry's, whatever it is a name of. */
function namesIn(text: string): string[] {
  return text.match(/\b(?:llama_stage|gen_ai)_\w+/g) ?? [];
}

function rowsOf({ panels }: AssembledDashboard): string[] {
  return panels.filter(({ type }) => type === 'row').map(({ title }) => title ?? '');
}

function panelsOf({ panels }: AssembledDashboard): Panel[] {
  return panels.filter((panel): panel is Panel => panel.type !== 'row');
}

describe('the dashboards', () => {
  it.each(writeDashboards())('are committed as they are generated: %s', (path, text) => {
    expect(readFileSync(join(OPERATIONS, path), 'utf8')).toBe(text);
  });

  it('use every metric of the registry in a panel, and none that is not in it', () => {
    const selected = panelQueries().flatMap(({ promql }) =>
      [...promql.matchAll(/(\w+)\{/g)].map(([, name]) => name as string),
    );
    expect(selected.filter((name) => !series.has(name))).toEqual([]);
    expect(new Set(selected.map((name) => series.get(name)))).toEqual(new Set(series.values()));
  });

  it('name no metric and no label in queries and variables that is not in the registry', () => {
    const texts = [
      ...panelQueries().map(({ promql }) => promql),
      ...dashboards.map(([, { templating }]) => JSON.stringify(templating)),
    ];
    const known = [...series.keys(), ...labels];
    expect(texts.flatMap(namesIn).filter((name) => !known.includes(name))).toEqual([]);
  });

  it('have ids of their own', () => {
    const ids = dashboards.map(([, { uid }]) => uid);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('have the same variables, so that a link between them keeps the choice', () => {
    expect(pipelineDashboard().templating).toEqual(stagesDashboard().templating);
  });

  it('list the queries of all panels', () => {
    const targets = dashboards.flatMap(([, dashboard]) =>
      panelsOf(dashboard).flatMap((panel) => panel.targets ?? []),
    );
    expect(panelQueries().map(({ promql }) => promql)).toEqual(
      targets.map((target) => (target as { expr?: string }).expr),
    );
    for (const { datasource } of panelQueries()) expect(datasource).toBe('prometheus');
  });
});

describe('the Pipeline dashboard', () => {
  it('has a row for each of the nine questions', () => {
    expect(rowsOf(pipelineDashboard())).toEqual(QUESTIONS);
  });
});

describe.each(dashboards)('the %s dashboard', (_, dashboard) => {
  const panels = panelsOf(dashboard);
  const text = JSON.stringify(dashboard);

  it.each(panels.map((panel) => [panel.title, panel] as const))(
    'says of "%s" how to read it and what to do',
    (title, panel) => {
      expect(title).toBeTruthy();
      expect(panel.description).toMatch(/^.{30,}\n\n\*\*When it looks wrong:\*\* .{20,}$/s);
    },
  );

  it('gives every figure a unit', () => {
    const figures = panels.filter(({ type }) => type !== 'text');
    for (const { fieldConfig, title } of figures) {
      expect(fieldConfig?.defaults.unit, title).toBeTruthy();
    }
  });

  it('shows shares from 0 to 1, unless they can be more', () => {
    const shares = panels.filter(
      ({ type, fieldConfig }) =>
        type === 'timeseries' && fieldConfig?.defaults.unit === 'percentunit',
    );
    for (const { fieldConfig, title } of shares) {
      const { min, max } = fieldConfig?.defaults ?? {};
      expect({ title, min }).toEqual({ title, min: 0 });
      if (max !== undefined) expect({ title, max }).toEqual({ title, max: 1 });
    }
  });

  it('explains every threshold that it draws', () => {
    const drawn = panels.filter((panel) => panel.fieldConfig?.defaults.thresholds !== undefined);
    for (const { title, description } of drawn) {
      expect(description, title).toMatch(/threshold|turns orange/);
    }
  });

  it('names every series of a graph', () => {
    for (const { promql, legend } of legends(panels)) {
      expect(legend, promql).toMatch(/[a-z]/);
      const kept = [...legend.matchAll(/{{(\w+)}}/g)].map(([, label]) => label);
      for (const label of kept) expect(promql).toMatch(new RegExp(`by \\([^)]*\\b${label}\\b`));
    }
  });

  it('filters every query by the chosen jobs and instances', () => {
    for (const { promql } of legends(panels)) {
      const selectors = [...promql.matchAll(/(?:llama_stage|gen_ai)_\w+{([^}]*)}/g)];
      expect(selectors.length, promql).toBeGreaterThan(0);
      for (const [, matchers] of selectors) {
        expect(matchers).toContain('job=~"$job", instance=~"$instance"');
      }
    }
  });

  it('draws no line for each process', () => {
    const graphs = panels.filter(({ type }) => type !== 'table');
    for (const { legend } of legends(graphs)) expect(legend).not.toMatch(/instance|job/);
  });

  it('rates over the interval that suits the resolution', () => {
    for (const { promql } of legends(panels)) {
      for (const [, range] of promql.matchAll(/\[([^\]]*)\]/g)) {
        expect(range).toBe('$__rate_interval');
      }
    }
  });

  it.each(
    panels.flatMap((panel) => targetsOf(panel).map((target) => [panel.title, target] as const)),
  )(
    'rates in "%s" over two exports or more of each interval that can be chosen',
    (_, { interval }) => {
      const { name, options, current } = variableOf(dashboard, interval);
      expect(name).toBe('export_interval');
      // What a worker does that nobody configured, and what stands there until somebody chooses.
      expect(current).toBe(60);
      expect(options).toContain(60);
      for (const exported of options) {
        // The widest panel on the largest screen, over the shortest time: no step to speak of.
        expect(rateInterval(1, exported)).toBeGreaterThanOrEqual(2 * exported);
      }
    },
  );

  it('divides by nothing that can be zero', () => {
    for (const { promql } of legends(panels)) {
      for (const divisor of divisorsOf(promql)) expect(divisor, promql).toMatch(/ > 0\)$/);
    }
  });

  it('uses only variables that there are', () => {
    const known = [...BUILT_IN, ...(dashboard.templating?.list ?? []).map(({ name }) => name)];
    const used = [...text.matchAll(/\$\{?(\w+)/g)].map(([, name]) => name);
    expect(used.filter((name) => !known.includes(name as string))).toEqual([]);
  });

  it('closes every bracket and quote of its queries', () => {
    for (const { promql } of legends(panels)) expect(unbalanced(promql), promql).toBe('');
  });

  it('can be imported anywhere: no id of an installation, no address', () => {
    expect(dashboard).not.toHaveProperty('id');
    expect(text).not.toMatch(/https?:/);
    expect(dashboard.uid).toMatch(/^[\w-]{8,40}$/);
  });

  it('leads to the traces of its time, and to the other dashboard', () => {
    const urls = panels.flatMap(({ links = [] }) => links.map(({ url }) => url ?? ''));
    expect(urls.length).toBeGreaterThan(5);
    for (const url of urls) {
      const panes = JSON.parse(new URLSearchParams(url.split('?')[1]).get('panes') ?? '');
      expect(panes.traces).toMatchObject({
        datasource: '$' + '{traces}',
        queries: [{ queryType: 'search', operation: 'llama_stage.generation' }],
        range: { from: '$' + '{__from}', to: '$' + '{__to}' },
      });
    }
    expect(dashboard.links).toMatchObject([
      { type: 'dashboards', tags: dashboard.tags, keepTime: true, includeVars: true },
    ]);
  });

  it('lays panels out without gaps in their numbers and without overlaps', () => {
    const all = dashboard.panels;
    expect(all.map(({ id }) => id)).toEqual(all.map((_, index) => index + 1));
    const cells = all.flatMap(({ gridPos: { x, y, w, h } = { x: 0, y: 0, w: 0, h: 0 } }) => {
      expect(x + w).toBeLessThanOrEqual(24);
      return Array.from(
        { length: w * h },
        (_, cell) => `${x + (cell % w)},${y + Math.floor(cell / w)}`,
      );
    });
    expect(new Set(cells).size).toBe(cells.length);
  });
});

/** The queries of panels, with what their series are called. */
function legends(panels: readonly Panel[]): { promql: string; legend: string }[] {
  return panels.flatMap((panel) =>
    targetsOf(panel).map(({ expr, legendFormat }) => ({
      promql: expr ?? '',
      legend: legendFormat ?? panel.type,
    })),
  );
}

interface Target {
  readonly expr?: string;
  readonly interval?: string;
  readonly legendFormat?: string;
}

function targetsOf(panel: Panel): Target[] {
  return (panel.targets ?? []) as Target[];
}

/** The variable that stands for a query's least step, with its values in seconds. */
function variableOf({ templating }: AssembledDashboard, interval = '') {
  const variable = templating?.list?.find(({ name }) => interval === `\${${name}}`);
  const { options = [], current } = (variable ?? {}) as {
    readonly options?: readonly { readonly value: string }[];
    readonly current?: { readonly value: string };
  };
  const seconds = (text = '') => Number(/^(\d+)s$/.exec(text)?.[1]);
  return {
    name: variable?.name,
    options: options.map(({ value }) => seconds(value)),
    current: seconds(current?.value),
  };
}

/** `$__rate_interval` as Grafana reckons it from a query's least step, all in seconds. */
function rateInterval(step: number, leastStep: number): number {
  return Math.max(step + leastStep, 4 * leastStep);
}

/** What stands behind each division, up to its closing bracket. */
function divisorsOf(promql: string): string[] {
  return [...promql.matchAll(/ \/ (?:on \([^)]*\) group_left \([^)]*\) )?/g)].map((division) => {
    const rest = promql.slice(division.index + division[0].length);
    let depth = 0;
    const end = [...rest].findIndex((character) => {
      if (character === '(') depth++;
      if (character === ')') depth--;
      return depth === 0;
    });
    return rest.slice(0, end + 1);
  });
}

/** What is left of an expression's brackets once pairs and quoted texts are taken out. */
function unbalanced(promql: string): string {
  let rest = promql.replaceAll(/"(?:[^"\\]|\\.)*"/g, '').replaceAll(/[^()[\]{}"]/g, '');
  for (let length = -1; length !== rest.length; ) {
    length = rest.length;
    rest = rest.replaceAll(/\(\)|\[\]|\{\}/g, '');
  }
  return rest;
}
