import {
  BigValueColorMode,
  BigValueGraphMode,
  BigValueTextMode,
  GraphThresholdsStyleConfigBuilder,
  GraphThresholdsStyleMode,
  LegendDisplayMode,
  LegendPlacement,
  ReduceDataOptionsBuilder,
  SortOrder,
  StackingConfigBuilder,
  StackingMode,
  TooltipDisplayMode,
  VizLegendOptionsBuilder,
  VizTooltipOptionsBuilder,
} from '@grafana/grafana-foundation-sdk/common';
import {
  type DynamicConfigValue,
  FieldColorBuilder,
  FieldColorModeId,
  ThresholdsConfigBuilder,
  ThresholdsMode,
} from '@grafana/grafana-foundation-sdk/dashboard';
import {
  HeatmapColorMode,
  HeatmapColorOptionsBuilder,
  PanelBuilder as HeatmapPanelBuilder,
  HeatmapTooltipBuilder,
  YAxisConfigBuilder,
} from '@grafana/grafana-foundation-sdk/heatmap';
import { DataqueryBuilder, PromQueryFormat } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder as StatPanelBuilder } from '@grafana/grafana-foundation-sdk/stat';
import { PanelBuilder as TablePanelBuilder } from '@grafana/grafana-foundation-sdk/table';
import { PanelBuilder as TextPanelBuilder } from '@grafana/grafana-foundation-sdk/text';
import { PanelBuilder as TimeseriesPanelBuilder } from '@grafana/grafana-foundation-sdk/timeseries';
import type { HistogramInstrument } from '../../../semconv/instruments.js';
import { quantile, rate, type Scope } from '../promql.js';
import { EXPORT_INTERVAL, PROMETHEUS, variable } from './variables.js';

/** What stands above and behind a panel. */
export interface Reading {
  readonly title: string;
  /** What it shows, and how to read it. */
  readonly read: string;
  /** What to do when it looks wrong. */
  readonly act: string;
}

/** A query, and how its series are called: `{{label}}` stands for the value of a label. */
export type Line = readonly [legend: string, promql: string];

const HEIGHT = 8;

/** Series over time. */
export function timeseries(
  reading: Reading,
  unit: string,
  lines: readonly Line[],
): TimeseriesPanelBuilder {
  return describe(new TimeseriesPanelBuilder(), reading)
    .targets(lines.map(([legend, promql], index) => query(promql, index).legendFormat(legend)))
    .unit(unit)
    .min(0)
    .lineWidth(1)
    .fillOpacity(8)
    .colorScheme(new FieldColorBuilder().mode(FieldColorModeId.PaletteClassic))
    .legend(
      new VizLegendOptionsBuilder()
        .displayMode(LegendDisplayMode.List)
        .placement(LegendPlacement.Bottom)
        .showLegend(true),
    )
    .tooltip(
      new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi).sort(SortOrder.Descending),
    );
}

/** Shares of a whole over time, from 0 to 100 %. */
export function shares(reading: Reading, lines: readonly Line[]): TimeseriesPanelBuilder {
  return timeseries(reading, 'percentunit', lines).max(1).decimals(0);
}

/** Shares that add up to the whole, one upon the other. */
export function stackedShares(reading: Reading, lines: readonly Line[]): TimeseriesPanelBuilder {
  return shares(reading, lines)
    .stacking(new StackingConfigBuilder().mode(StackingMode.Normal))
    .lineWidth(0)
    .fillOpacity(80);
}

const PERCENTILES = [
  [0.5, 'p50', 'light-blue'],
  [0.95, 'p95', 'blue'],
  [0.99, 'p99', 'dark-blue'],
] as const;

/** Percentiles of a histogram over time. */
export function percentiles(
  reading: Reading,
  unit: string,
  instrument: HistogramInstrument,
  scope: Scope,
): TimeseriesPanelBuilder {
  const lines = PERCENTILES.map(([q, name]): Line => [name, quantile(q, instrument, scope)]);
  return colored(
    timeseries(reading, unit, lines),
    Object.fromEntries(PERCENTILES.map(([, name, color]) => [name, color])),
  );
}

/** How the values of a histogram are spread over its buckets, over time. */
export function heatmap(
  reading: Reading,
  unit: string,
  instrument: HistogramInstrument,
  scope: Scope,
): HeatmapPanelBuilder {
  const buckets = rate(instrument, { ...scope, by: 'le' }, { suffix: '_bucket' });
  return describe(new HeatmapPanelBuilder(), reading)
    .targets([query(buckets, 0).format(PromQueryFormat.Heatmap).legendFormat('{{le}}')])
    .unit(unit)
    .yAxis(new YAxisConfigBuilder().unit(unit))
    .color(
      new HeatmapColorOptionsBuilder()
        .mode(HeatmapColorMode.Scheme)
        .scheme('Blues')
        .exponent(0.5)
        .steps(64),
    )
    .tooltip(
      new HeatmapTooltipBuilder()
        .mode(TooltipDisplayMode.Single)
        .yHistogram(true)
        .showColorScale(true),
    );
}

/** One figure, as it is now. */
export function stat(reading: Reading, unit: string, [legend, promql]: Line): StatPanelBuilder {
  return describe(new StatPanelBuilder(), reading)
    .targets([query(promql, 0).legendFormat(legend).instant()])
    .unit(unit)
    .noValue('none')
    .height(4)
    .span(6)
    .colorMode(BigValueColorMode.Value)
    .graphMode(BigValueGraphMode.None)
    .textMode(BigValueTextMode.Value)
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(['lastNotNull']));
}

/** A column of a table: its title, its unit, and the query of its values. */
export type Column = readonly [title: string, unit: string, promql: string];

/** Figures as they are now, with a line for each set of the labels that all queries keep. */
export function table(
  reading: Reading,
  labels: Readonly<Record<string, string>>,
  columns: readonly Column[],
): TablePanelBuilder {
  const values = columns.map(
    ([title], index) => [valueField(index, columns.length), title] as const,
  );
  const panel = describe(new TablePanelBuilder(), reading)
    .targets(
      columns.map(([, , promql], index) =>
        query(promql, index).format(PromQueryFormat.Table).instant(),
      ),
    )
    .unit('short')
    .withTransformation({ id: 'merge', options: {} })
    .withTransformation({
      id: 'organize',
      options: {
        excludeByName: { Time: true },
        indexByName: Object.fromEntries(
          [...Object.keys(labels), ...values.map(([field]) => field)].map((field, index) => [
            field,
            index,
          ]),
        ),
        renameByName: { ...labels, ...Object.fromEntries(values) },
      },
    });
  for (const [title, unit] of columns) panel.overrideByName(title, [{ id: 'unit', value: unit }]);
  return panel;
}

/** How Grafana calls the values of a query; it numbers them only where there are several. */
function valueField(index: number, queries: number): string {
  return queries === 1 ? 'Value' : `Value #${refId(index)}`;
}

/** Words in place of a figure that no metric gives. */
export function text(reading: Reading, content: string): TextPanelBuilder {
  return describe(new TextPanelBuilder(), reading).content(content);
}

/** Gives series the colours of their meaning, by their names. */
export function colored(
  panel: TimeseriesPanelBuilder,
  colors: Readonly<Record<string, string>>,
): TimeseriesPanelBuilder {
  for (const [name, color] of Object.entries(colors)) panel.overrideByName(name, [fixed(color)]);
  return panel;
}

/** Shades of one colour, for series with an order and no end. */
export function shades(color: string): FieldColorBuilder {
  return new FieldColorBuilder().mode(FieldColorModeId.Shades).fixedColor(color);
}

export function fixed(color: string): DynamicConfigValue {
  return { id: 'color', value: { mode: FieldColorModeId.Fixed, fixedColor: color } };
}

/** Colours from values on; the first one holds from below. */
export function thresholds(
  below: string,
  ...steps: readonly (readonly [value: number, color: string])[]
): ThresholdsConfigBuilder {
  return new ThresholdsConfigBuilder()
    .mode(ThresholdsMode.Absolute)
    .steps([{ value: null, color: below }, ...steps.map(([value, color]) => ({ value, color }))]);
}

/** Draws a panel's thresholds as lines across it. */
export function dashedThresholds(): GraphThresholdsStyleConfigBuilder {
  return new GraphThresholdsStyleConfigBuilder().mode(GraphThresholdsStyleMode.Dashed);
}

interface Describable<Panel> {
  title(title: string): Panel;
  description(description: string): Panel;
  datasource(datasource: typeof PROMETHEUS): Panel;
  noValue(text: string): Panel;
  height(height: number): Panel;
  span(width: number): Panel;
}

function describe<Panel extends Describable<Panel>>(panel: Panel, reading: Reading): Panel {
  return panel
    .title(reading.title)
    .description(`${reading.read}\n\n**When it looks wrong:** ${reading.act}`)
    .datasource(PROMETHEUS)
    .noValue('nothing happened in this time, or nothing was exported')
    .height(HEIGHT)
    .span(12);
}

/** The least step is what Grafana reckons `$__rate_interval` from, before the data source's own. */
function query(promql: string, index: number): DataqueryBuilder {
  return new DataqueryBuilder()
    .refId(refId(index))
    .datasource(PROMETHEUS)
    .expr(promql)
    .interval(variable(EXPORT_INTERVAL))
    .range();
}

/** `A`, `B`, … */
function refId(index: number): string {
  return String.fromCharCode('A'.charCodeAt(0) + index);
}
