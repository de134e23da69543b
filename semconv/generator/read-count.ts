import type { Fields } from './fields.js';
import type { Attribute, Count, Metric } from './model.js';
import { checkFieldName } from './names.js';

/** Ends the name of every field of the counts that holds a duration. */
const MS = 'Ms';

/** Reads what the annotation `count` of a metric says. */
export function readCount(
  own: Fields,
  metric: Metric,
  known: ReadonlyMap<string, Attribute>,
): Count {
  if (!metric.asynchronous) own.fail('count belongs to an asynchronous metric');
  const attribute = readKeys(own, metric, known);
  if (own.raw('count') === 1) return { field: 1, attribute, isMs: false };

  const field = own.raw('count');
  if (typeof field !== 'string') own.fail('count is neither the name of a field nor 1');
  checkFieldName(field, own);
  const isMs = field.endsWith(MS);
  if (isMs !== (metric.unit === 's')) {
    own.fail(`count is ${field} and unit ${metric.unit}: what ends in ${MS} goes with s`);
  }
  return { field, attribute, isMs };
}

/** The attribute whose values are the keys of the counts' field. */
function readKeys(
  own: Fields,
  { attributes }: Metric,
  known: ReadonlyMap<string, Attribute>,
): Attribute | undefined {
  if (attributes.length === 0) return undefined;
  const [use] = attributes;
  const attribute = known.get(use?.name ?? '');
  if (attributes.length > 1 || use?.level !== 'required' || !attribute?.values.length) {
    own.fail('count goes with one required attribute whose values are known, or with none');
  }
  return attribute;
}
