import { addOnce, type Fields, RegistryError } from './fields.js';
import type { Attribute, Figure, FigureKind, Span } from './model.js';
import { checkFieldName, checkTimingName } from './names.js';
import { definitionsOf } from './read-attributes.js';

/** The type that an attribute has for a figure of each kind. */
const TYPES: Readonly<Record<FigureKind, string>> = {
  count: 'int',
  ms: 'double',
  fraction: 'double',
  average: 'double',
  boolean: 'boolean',
  ms_by_level: 'double[]',
};

/** Reads what the annotations `figure` of attributes say. */
export function readFigures(
  groups: readonly Fields[],
  attributes: ReadonlyMap<string, Attribute>,
): readonly Figure[] {
  const byStatistic = new Map<string, Figure>();
  const byTiming = new Map<string, Figure>();
  for (const group of groups) {
    for (const definition of definitionsOf(group)) {
      const attribute = attributes.get(definition.text('id'));
      const own = definition.nested('annotations', 'llama_stage');
      if (attribute === undefined || !own.has('figure')) continue;
      const fields = own.nested('figure').at(`${group.place}: figure of ${attribute.name}`);
      const figure = readFigure(fields, attribute, group);
      addOnce(byStatistic, figure.statistic, figure, fields);
      addOnce(byTiming, figure.timing, figure, fields);
    }
  }
  for (const { attribute, partOf } of byTiming.values()) {
    if (!byTiming.has(partOf)) continue;
    throw new RegistryError(`figure of ${attribute.name}: part_of is the timing of a figure`);
  }
  return [...byTiming.values()];
}

function readFigure(fields: Fields, attribute: Attribute, group: Fields): Figure {
  const id = group.text('id');
  const figure: Figure = {
    attribute,
    group: id.slice(id.lastIndexOf('.') + 1),
    statistic: fields.text('statistic'),
    timing: fields.text('timing'),
    kind: fields.oneOf('kind', Object.keys(TYPES) as FigureKind[]),
    derived: fields.has('derived') && fields.boolean('derived'),
    partOf: fields.optionalText('part_of'),
    introducedWith: fields.optionalText('introduced_with'),
  };
  checkFigure(figure, fields);
  return figure;
}

function checkFigure({ attribute, statistic, timing, kind, partOf }: Figure, place: Fields): void {
  checkFieldName(statistic, place);
  checkTimingName(timing, place);
  if (TYPES[kind] !== attribute.type) {
    place.fail(`kind is ${kind}, which takes the type ${TYPES[kind]} and not ${attribute.type}`);
  }
  if (partOf === '') return;
  checkTimingName(partOf, place);
  if (kind !== 'boolean') place.fail('part_of belongs to a boolean');
}

/** Puts the figures in the order in which a span refers to their attributes. */
export function inOrderOfSpans(
  figures: readonly Figure[],
  spans: readonly Span[],
): readonly Figure[] {
  const order = spans.flatMap((span) => span.attributes.map(({ name }) => name));
  const placeOf = ({ attribute: { name } }: Figure): number => {
    const place = order.indexOf(name);
    if (place < 0) throw new RegistryError(`figure of ${name}: no span refers to its attribute`);
    return place;
  };
  return figures.toSorted((a, b) => placeOf(a) - placeOf(b));
}
