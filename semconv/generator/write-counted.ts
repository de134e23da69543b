import type { AttributeValue, Count, Metric, Registry } from './model.js';
import { attributeConstant, instrumentConstant } from './names.js';
import { block, docComment, HEADER, namedImports, quote } from './source-text.js';

type Counted = Metric & { readonly count: Count };

export function writeCounted({ metrics }: Registry): string {
  const counted = metrics.filter((metric): metric is Counted => metric.count !== undefined);
  const attributes = attributesOf(metrics);
  const instruments = counted.map(({ name }) => instrumentConstant(name));
  return [
    HEADER,
    [
      namedImports(attributes.map(attributeConstant), './attributes.js'),
      namedImports([...instruments, 'type Instrument'], './instruments.js'),
    ].join(''),
    countsType(counted),
    SERIES_TYPE,
    table(counted),
    ownAttributes(attributes),
  ].join('\n');
}

/** Those that metrics set by themselves; which model a generation ran comes from the host. */
function attributesOf(metrics: readonly Metric[]): readonly string[] {
  const names = metrics.flatMap(({ attributes }) => attributes.map(({ name }) => name));
  return [...new Set(names)].filter((name) => !name.startsWith('gen_ai.')).toSorted();
}

function ownAttributes(attributes: readonly string[]): string {
  const comment = docComment(['What metrics set by themselves, and no host may give them.']);
  const lines = attributes.map((name) => `${attributeConstant(name)},`);
  return `${comment}\n${block('export const METRIC_ATTRIBUTES: readonly string[] = [', lines, '];')}`;
}

function countsType(counted: readonly Counted[]): string {
  const comment = docComment([
    "What the series below read of a scheduler's counts. Durations are milliseconds.",
  ]);
  const types = new Map<string, readonly string[]>();
  for (const { field, attribute } of counted.map(({ count }) => count)) {
    if (field !== 1) types.set(field, fieldType(field, attribute?.values ?? []));
  }
  const fields = [...types].toSorted(([a], [b]) => (a < b ? -1 : 1)).flatMap(([, lines]) => lines);
  return `${comment}\n${block('export interface ReadableCounts {', fields, '}')}`;
}

function fieldType(field: string, keys: readonly AttributeValue[]): readonly string[] {
  if (keys.length === 0) return [`readonly ${field}: number;`];
  return [`readonly ${field}: {`, ...keys.map(({ value }) => `  readonly ${value}: number;`), '};'];
}

const SERIES_TYPE = `/** One series of an instrument that a collection reads. */
export interface Series {
  readonly instrument: Instrument;
  /** What tells this series from the others of its instrument. */
  readonly attributes?: Readonly<Record<string, string>>;
  read(counts: ReadableCounts): number;
}
`;

function table(counted: readonly Counted[]): string {
  const comment = docComment([
    "Every series that reads one field of a scheduler's counts as it is.",
  ]);
  const lines = counted.flatMap(({ name, count }) => {
    const instrument = `instrument: ${instrumentConstant(name)},`;
    const { attribute } = count;
    if (attribute === undefined) return series([instrument, `read: ${reader(count)},`]);
    return attribute.values.flatMap(({ value }) =>
      series([
        instrument,
        `attributes: { [${attributeConstant(attribute.name)}]: ${quote(value)} },`,
        `read: ${reader(count, value)},`,
      ]),
    );
  });
  return `${comment}\n${block('export const COUNTED: readonly Series[] = [', lines, '];')}`;
}

/** Reads the field by its name: with names as data, adding up takes a third longer. */
function reader({ field, isMs }: Count, key?: string): string {
  if (field === 1) return '() => 1';
  const value = key === undefined ? field : `${field}.${key}`;
  return `(counts) => counts.${value}${isMs ? ' / 1000' : ''}`;
}

function series(properties: readonly string[]): readonly string[] {
  return ['{', ...properties.map((property) => `  ${property}`), '},'];
}
