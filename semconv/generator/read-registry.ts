import { addOnce, type Fields, RegistryError } from './fields.js';
import type {
  Attribute,
  AttributeUse,
  Entity,
  Metric,
  Registry,
  Span,
  SpanEvent,
} from './model.js';
import { constantCase } from './names.js';
import {
  definitionsOf,
  readAttribute,
  readAttributeUse,
  readReferenceValues,
  readUpstreamAttribute,
  referencesOf,
} from './read-attributes.js';
import { inOrderOfSpans, readFigures } from './read-figures.js';
import { readEntity, readEvent, readMetric, readSpan, readUpstreamMetric } from './read-signals.js';
import { readRegistryFiles, readYaml } from './yaml-files.js';

const GROUP_TYPES = ['attribute_group', 'metric', 'span', 'event', 'entity'] as const;

/** Reads the registry in a folder, and throws a `RegistryError` at the first thing wrong with it. */
export function readRegistry(folder: string, upstreamFile: string): Registry {
  const files = readRegistryFiles(folder);
  const upstream = readYaml(upstreamFile, 'upstream.yaml');
  const groups = readGroups(files);

  const allGroups = [...groups.values()];
  const attributes = readAttributes(allGroups, upstream);
  const usesOf = (group: Fields) => readUses(group, groups, attributes);
  for (const group of allGroups) usesOf(group);

  const events = new Map<string, SpanEvent>();
  for (const [id, group] of ofType(groups, 'event')) {
    addOnce(events, id, readEvent(group, usesOf(group)), group);
  }
  const metrics = new Map<string, Metric>();
  for (const [, group] of ofType(groups, 'metric')) {
    const metric = readMetric(group, usesOf(group), attributes);
    addOnce(metrics, metric.name, metric, group);
  }
  for (const metric of readImportedMetrics(files, allGroups, upstream, attributes)) {
    addOnce(metrics, metric.name, metric, upstream);
  }
  const spans = new Map<string, Span>();
  for (const [, group] of ofType(groups, 'span')) {
    const span = readSpan(group, usesOf(group), events);
    addOnce(spans, span.name, span, group);
  }
  const entities = new Map<string, Entity>();
  for (const [, group] of ofType(groups, 'entity')) {
    const entity = readEntity(group, usesOf(group));
    addOnce(entities, entity.name, entity, group);
  }

  return {
    attributes: usable([...attributes.values()]),
    metrics: usable([...metrics.values()]),
    spans: usable([...spans.values()]),
    events: usable([...events.values()]),
    entities: usable([...entities.values()]),
    figures: inOrderOfSpans(readFigures(allGroups, attributes), [...spans.values()]),
  };
}

function readGroups(files: readonly Fields[]): Map<string, Fields> {
  const groups = new Map<string, Fields>();
  for (const group of files.flatMap((file) => file.fieldsList('groups'))) {
    const id = group.text('id');
    const placed = group.at(`${group.place}: ${id}`);
    placed.oneOf('type', GROUP_TYPES);
    placed.text('brief');
    addOnce(groups, id, placed, placed);
  }
  return groups;
}

function ofType(groups: ReadonlyMap<string, Fields>, type: (typeof GROUP_TYPES)[number]) {
  return [...groups].filter(([, group]) => group.raw('type') === type);
}

function readAttributes(groups: readonly Fields[], upstream: Fields): Map<string, Attribute> {
  const attributes = new Map<string, Attribute>();
  for (const group of groups) {
    for (const entry of definitionsOf(group)) {
      if (group.raw('type') !== 'attribute_group') {
        group.fail('attributes are defined in attribute groups, and referred to everywhere else');
      }
      const attribute = readAttribute(entry);
      addOnce(attributes, attribute.name, attribute, entry);
    }
  }
  const references = groups.flatMap(referencesOf);
  for (const definition of upstream.fieldsList('attributes')) {
    const attribute = readUpstreamAttribute(definition);
    const values = readReferenceValues(
      references.filter((each) => each.raw('ref') === attribute.name),
    );
    addOnce(attributes, attribute.name, { ...attribute, values }, definition);
  }
  return attributes;
}

/** The references of a group, after those of the group that it extends. */
function readUses(
  group: Fields,
  groups: ReadonlyMap<string, Fields>,
  attributes: ReadonlyMap<string, Attribute>,
): readonly AttributeUse[] {
  const uses = new Map<string, AttributeUse>();
  if (group.has('extends')) {
    const id = group.text('extends');
    const parent = groups.get(id) ?? group.fail(`extends ${id}, which is no group`);
    if (parent.has('extends')) group.fail(`extends ${id}, which extends another group itself`);
    for (const use of readUses(parent, groups, attributes)) uses.set(use.name, use);
  }
  for (const use of referencesOf(group).map((each) => readAttributeUse(each, attributes))) {
    uses.set(use.name, use);
  }
  return [...uses.values()];
}

function readImportedMetrics(
  files: readonly Fields[],
  groups: readonly Fields[],
  upstream: Fields,
  attributes: ReadonlyMap<string, Attribute>,
): readonly Metric[] {
  const definitions = upstream.fieldsList('metrics');
  const imported = files.flatMap((file) =>
    file
      .nested('imports')
      .texts('metrics')
      .map(
        (name) =>
          definitions.find((each) => each.raw('name') === name) ??
          file.fail(`imports ${name}, which upstream.yaml does not describe`),
      ),
  );
  const additions = readAdditions(groups, new Set(imported.map((each) => each.text('name'))));
  return imported.map((definition) => {
    const more = additions.get(definition.text('name')) ?? [];
    const references = [...referencesOf(definition), ...more];
    return readUpstreamMetric(
      definition,
      references.map((each) => readAttributeUse(each, attributes)),
    );
  });
}

/** The references by which this registry adds to the attributes of metrics that it imports. */
function readAdditions(
  groups: readonly Fields[],
  imported: ReadonlySet<string>,
): ReadonlyMap<string, readonly Fields[]> {
  const additions = new Map<string, readonly Fields[]>();
  for (const group of groups) {
    for (const name of group.nested('annotations', 'llama_stage').texts('carried_by')) {
      if (!imported.has(name)) group.fail(`carried_by has ${name}, which is not imported`);
      additions.set(name, [...(additions.get(name) ?? []), ...referencesOf(group)]);
    }
  }
  return additions;
}

/** Sorted by name; names that differ only in their delimiters would share a constant. */
function usable<T extends { readonly name: string }>(named: readonly T[]): readonly T[] {
  const names = new Map<string, string>();
  for (const { name } of named) {
    const other = names.get(constantCase(name));
    if (other !== undefined) throw new RegistryError(`${other} and ${name} make the same constant`);
    names.set(constantCase(name), name);
  }
  return named.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}
