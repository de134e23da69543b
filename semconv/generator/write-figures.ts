import type { Figure, FigureKind, Registry } from './model.js';
import { attributeConstant } from './names.js';
import {
  block,
  docComment,
  HEADER,
  lineComment,
  namedImports,
  quote,
  unionType,
} from './source-text.js';

export function writeFigures({ figures }: Registry): string {
  const constants = figures.map(({ attribute }) => attributeConstant(attribute.name));
  return [
    HEADER,
    namedImports(constants.toSorted(), './attributes.js'),
    statistics(figures),
    timings(figures),
    figureType(figures),
    table(figures),
  ].join('\n');
}

function statistics(figures: readonly Figure[]): string {
  const comment = docComment([
    "A snapshot of one generation's verify windows: plain data, one field for each figure. All times are milliseconds. Fractions and averages are 0 where no time went by.",
  ]);
  const fields = figures.flatMap(({ attribute, kind, statistic }) => [
    ...lineComment(attribute.brief),
    `readonly ${statistic}: ${kind === 'ms_by_level' ? 'readonly ' : ''}${TYPES[kind]};`,
  ]);
  return `${comment}\n${block('export interface VerifyWindowStats {', fields, '}')}`;
}

function timings(figures: readonly Figure[]): string {
  const comment = docComment([
    "The verify-window keys of a response's `timings` object. Times are milliseconds.",
  ]);
  const fields = figures.flatMap(({ kind, partOf, timing }, index) => {
    const isFirstPart = figures.findIndex((each) => each.partOf === partOf) === index;
    return [
      ...(partOf !== '' && isFirstPart ? wholeTiming(partOf, figures) : []),
      `${timing}: ${TYPES[kind]};`,
    ];
  });
  return `${comment}\n${block('export interface ResponseTimings {', fields, '}')}`;
}

/** A timing without a figure of its own. */
function wholeTiming(timing: string, figures: readonly Figure[]): readonly string[] {
  const parts = figures.filter(({ partOf }) => partOf === timing);
  const names = parts.map((part) => `\`${part.timing}\``).join(' or ');
  return [...lineComment(`Whether ${names} is true.`), `${timing}: boolean;`];
}

const TYPES: Readonly<Record<FigureKind, string>> = {
  count: 'number',
  ms: 'number',
  fraction: 'number',
  average: 'number',
  boolean: 'boolean',
  ms_by_level: 'number[]',
};

function figureType(figures: readonly Figure[]): string {
  const oneOf = (key: 'group' | 'introducedWith' | 'kind' | 'partOf') =>
    unionType(figures.map((figure) => figure[key]).filter((value) => value !== ''));
  const comment = docComment([
    'What a statistic, a response timing and an attribute of the generation span tell alike.',
  ]);
  const fields = [
    'readonly statistic: keyof VerifyWindowStats;',
    'readonly timing: keyof ResponseTimings;',
    'readonly attribute: string;',
    'readonly kind: FigureKind;',
    ...lineComment('Whether it follows from other figures.'),
    'readonly isDerived: boolean;',
    ...lineComment('Which of the two sets of attributes of a generation its attribute is in.'),
    `readonly group: ${oneOf('group')};`,
    ...lineComment('What a later version of the workers brought, and this figure with it.'),
    `readonly introducedWith?: ${oneOf('introducedWith')};`,
    ...lineComment('The timing that is true where this one is true, or another part of it.'),
    `readonly partOf?: ${oneOf('partOf')};`,
  ];
  return [
    `export type FigureKind = ${oneOf('kind')};\n`,
    `${comment}\n${block('export interface Figure {', fields, '}')}`,
  ].join('\n');
}

function table(figures: readonly Figure[]): string {
  const comment = docComment(['Every figure, in the order of the response timings.']);
  const lines = figures.flatMap((figure) => [
    '{',
    `  statistic: ${quote(figure.statistic)},`,
    `  timing: ${quote(figure.timing)},`,
    `  attribute: ${attributeConstant(figure.attribute.name)},`,
    `  kind: ${quote(figure.kind)},`,
    `  isDerived: ${figure.derived},`,
    `  group: ${quote(figure.group)},`,
    ...(figure.introducedWith ? [`  introducedWith: ${quote(figure.introducedWith)},`] : []),
    ...(figure.partOf ? [`  partOf: ${quote(figure.partOf)},`] : []),
    '},',
  ]);
  return `${comment}\n${block('export const FIGURES: readonly Figure[] = [', lines, '];')}`;
}
