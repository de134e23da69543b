import type { Fields } from './fields.js';

/** OpenTelemetry's naming rules: lower case, starts with a letter, no two delimiters in a row. */
const NAME = /^[a-z][a-z0-9]*([._][a-z0-9]+)*$/;

const OWN_NAMESPACE = 'llama_stage.';

/** A name as TypeScript has it for a field. */
const FIELD_NAME = /^[a-z][a-zA-Z0-9]*$/;

const TIMING_NAME = /^[a-z][a-z0-9]*(_[a-z0-9]+)*$/;

export function checkName(name: string, place: Fields): void {
  if (!NAME.test(name)) place.fail(`${name} is no valid name`);
}

export function checkOwnName(name: string, place: Fields): void {
  checkName(name, place);
  if (!name.startsWith(OWN_NAMESPACE)) {
    place.fail(`${name} is outside ${OWN_NAMESPACE}*: refer to it, do not define it`);
  }
}

export function checkFieldName(name: string, place: Fields): void {
  if (!FIELD_NAME.test(name)) place.fail(`${name} is no name of a field`);
}

export function checkTimingName(name: string, place: Fields): void {
  if (!TIMING_NAME.test(name)) place.fail(`${name} is no name of a response timing`);
}

/** `llama_stage.stage.index` → `LLAMA_STAGE_STAGE_INDEX` */
export function constantCase(name: string): string {
  return name.replaceAll('.', '_').toUpperCase();
}

export function attributeConstant(name: string): string {
  return `ATTR_${constantCase(name)}`;
}

export function valueConstant(attribute: string, value: string): string {
  return `${constantCase(attribute)}_VALUE_${constantCase(value)}`;
}

/** The array of all values of an attribute. */
export function valuesConstant(attribute: string): string {
  return `${constantCase(attribute)}_VALUES`;
}

export function metricConstant(name: string): string {
  return `METRIC_${constantCase(name)}`;
}

export function instrumentConstant(name: string): string {
  return `INSTRUMENT_${constantCase(name)}`;
}

export function spanConstant(name: string): string {
  return `SPAN_${constantCase(name)}`;
}

export function eventConstant(name: string): string {
  return `EVENT_${constantCase(name)}`;
}
