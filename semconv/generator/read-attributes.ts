import type { Fields } from './fields.js';
import type { Attribute, AttributeUse, AttributeValue } from './model.js';
import { checkName, checkOwnName } from './names.js';

const TYPES = ['string', 'int', 'double', 'boolean', 'string[]', 'int[]', 'double[]', 'boolean[]'];

export function definitionsOf(group: Fields): readonly Fields[] {
  return group.fieldsList('attributes').filter((each) => !each.has('ref'));
}

export function referencesOf(group: Fields): readonly Fields[] {
  return group.fieldsList('attributes').filter((each) => each.has('ref'));
}

export function readAttribute(definition: Fields): Attribute {
  const name = definition.text('id');
  const fields = definition.at(`${definition.place}: attribute ${name}`);
  checkOwnName(name, fields);
  fields.text('stability');
  const values = readMembers(fields);
  const type = values.length > 0 ? 'string' : fields.oneOf('type', TYPES);
  const examples = fields.list('examples');
  if (type !== 'boolean' && values.length === 0 && examples.length === 0) {
    fields.fail('examples are missing');
  }
  return {
    name,
    type,
    brief: fields.text('brief'),
    note: fields.optionalText('note'),
    examples,
    values,
    upstream: false,
  };
}

function readMembers(attribute: Fields): readonly AttributeValue[] {
  if (typeof attribute.raw('type') === 'string') return [];
  const members = attribute.nested('type').fieldsList('members');
  for (const member of members) member.text('id');
  return readValues(members);
}

/** A definition that stands upstream; what this registry adds to it comes from its references. */
export function readUpstreamAttribute(definition: Fields): Attribute {
  const name = definition.text('name');
  const fields = definition.at(`${definition.place}: attribute ${name}`);
  checkName(name, fields);
  return {
    name,
    type: fields.oneOf('type', TYPES),
    brief: fields.text('brief'),
    note: '',
    examples: fields.list('examples'),
    values: [],
    upstream: true,
  };
}

/** The values that references document for an attribute of OpenTelemetry's. */
export function readReferenceValues(references: readonly Fields[]): readonly AttributeValue[] {
  return readValues(
    references.flatMap((each) => each.nested('annotations', 'llama_stage').fieldsList('values')),
  );
}

function readValues(members: readonly Fields[]): readonly AttributeValue[] {
  const seen = new Set<string>();
  return members.map((member) => {
    const value = member.text('value');
    const fields = member.at(`${member.place}: value ${value}`);
    if (seen.has(value)) fields.fail('is there twice');
    seen.add(value);
    return { value, brief: fields.text('brief') };
  });
}

export function readAttributeUse(
  reference: Fields,
  known: ReadonlyMap<string, Attribute>,
): AttributeUse {
  const name = reference.text('ref');
  const fields = reference.at(`${reference.place}: ref ${name}`);
  if (!known.has(name)) fields.fail('no attribute of that name is defined');
  return { name, level: readRequirementLevel(fields) };
}

function readRequirementLevel(reference: Fields): string {
  if (typeof reference.raw('requirement_level') === 'string') {
    return reference.oneOf('requirement_level', ['required', 'recommended', 'opt_in']);
  }
  if (!reference.has('requirement_level')) reference.fail('requirement_level is missing');
  const condition = reference.nested('requirement_level').text('conditionally_required');
  return `conditionally required: ${condition}`;
}
