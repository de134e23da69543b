/** Three digits that count, and thousands apart. */
export function number(value: number): string {
  return value.toLocaleString('en', { maximumSignificantDigits: 3 });
}

/** Bytes, in the largest unit that leaves at least one before the point. */
export function bytes(value: number): string {
  const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  const power = Math.min(Math.max(0, Math.floor(Math.log10(value) / 3)), UNITS.length - 1);
  return `${number(value / 1000 ** power)} ${UNITS[power]}`;
}

/** A table in Markdown. */
export function table(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(columns), line(columns.map(() => '---')), ...rows.map(line)].join('\n');
}
