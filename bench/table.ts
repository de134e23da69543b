import type { Ratio, Timings } from './alternate.js';
import type { CollectionTime } from './collection.js';
import type { Memory } from './memory.js';
import { quantile } from './quantile.js';

/** One bar, and what was measured against it. */
export type Row = {
  readonly what: string;
  readonly bar: number;
  readonly sign: string;
  isMet(value: number): boolean;
} & ({ readonly ratio: Ratio } | { readonly value: number });

const WHAT_WIDTH = 56;

export function renderTable(
  rows: readonly Row[],
  timings: Timings,
  collections: readonly CollectionTime[],
  { growthBytes, liveBytes }: Memory,
): string {
  const kib = (bytes: number) => `${(bytes / 1024).toFixed(0)} KiB`;
  return [
    `${'against its bar'.padEnd(WHAT_WIDTH)}     bar  measured  middle half of the rounds`,
    ...rows.map(rowLine),
    '',
    `${'one window'.padEnd(WHAT_WIDTH)}  median  middle half`,
    ...[...timings].map(([{ name }, ns]) => {
      const half = `${quantile(ns, 0.25).toFixed(0)} to ${quantile(ns, 0.75).toFixed(0)} ns`;
      return `${name.padEnd(WHAT_WIDTH)}${quantile(ns, 0.5).toFixed(0).padStart(5)} ns  ${half}, ${ns.length} rounds`;
    }),
    '',
    `${'one collection'.padEnd(WHAT_WIDTH)}   median  middle half`,
    ...collections.map(({ live, windows, medianMs, quartilesMs, samples }) => {
      const what = `${live} live, after ${windows} windows`.padEnd(WHAT_WIDTH);
      const half = quartilesMs.map((ms) => ms.toFixed(2)).join(' to ');
      return `${what}${medianMs.toFixed(2).padStart(6)} ms  ${half} ms, ${samples} samples`;
    }),
    '',
    'memory',
    `  live scheduler of depth 8: ${liveBytes.bare} B; observed ${liveBytes.observed} B; with 8 windows in flight ${liveBytes.observedAndFull} B`,
    `  left after ten million windows: ${kib(growthBytes.afterTenMillionWindows)}`,
    `  left after a million schedulers closed: ${kib(growthBytes.afterAMillionClosed)}`,
    `  left after a million schedulers forgotten: ${kib(growthBytes.afterAMillionForgotten)}`,
  ].join('\n');
}

function rowLine(row: Row): string {
  const value = 'ratio' in row ? row.ratio.median : row.value;
  const bar = `${row.sign} ${row.bar}`.padStart(8);
  const spread =
    'ratio' in row
      ? `${row.ratio.quartiles.map((each) => each.toFixed(2)).join(' to ')}, ${row.ratio.rounds} rounds`
      : '';
  const mark = row.isMet(value) ? '' : '  FALLS SHORT';
  return `${row.what.padEnd(WHAT_WIDTH)}${bar}${value.toFixed(2).padStart(10)}  ${spread}${mark}`;
}
