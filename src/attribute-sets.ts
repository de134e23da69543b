import type { Attributes, AttributeValue } from '@opentelemetry/api';
import { ATTR_OTEL_METRIC_OVERFLOW } from '../semconv/attributes.js';
import { COUNTED, METRIC_ATTRIBUTES } from '../semconv/counted.js';
import { attempt, problems, warnOnce } from './guard.js';
import { refuseArgument } from './scheduler/error.js';

export const DEFAULT_MAX_ATTRIBUTE_SETS = 100;

/** The SDK keeps this many series of a metric apart; what comes later it adds up wrongly. */
export const MAX_SERIES = 1999;

/**
 * The most attribute sets that are kept apart whatever was asked for, so that the metric with the most
 * series for each set stays below {@link MAX_SERIES}. One more stands for all others.
 */
export const MAX_ATTRIBUTE_SETS = (() => {
  const series = COUNTED.map(
    ({ instrument }) => COUNTED.filter((other) => other.instrument === instrument).length,
  );
  return Math.floor(MAX_SERIES / Math.max(...series)) - 1;
})();

/** A host's attribute of such a name would make two series of one identity. */
const RESERVED: ReadonlySet<string> = new Set([...METRIC_ATTRIBUTES, ATTR_OTEL_METRIC_OVERFLOW]);

/** Attributes that are kept apart from others, with the key that tells them apart. */
export interface AttributeSet {
  readonly key: string;
  readonly attributes: Attributes;
}

/** What stands for every attribute set beyond the limit. */
const OVERFLOW: AttributeSet = setOf({ [ATTR_OTEL_METRIC_OVERFLOW]: true });

/** @throws {VerifyWindowError} `invalid_argument` for what is not an integer of at least 1. */
export function requireLimit(limit: unknown): void {
  if (!Number.isSafeInteger(limit) || (limit as number) < 1) {
    refuseArgument('maxAttributeSets', 'an integer of at least 1', limit);
  }
}

/** The attribute sets that were seen, bounded. */
export class AttributeSets {
  readonly #sets = new Map<string, AttributeSet>();
  /** The same by a text that is quick to make: the same attributes in another order have another. */
  readonly #byText = new Map<string, AttributeSet>();

  /**
   * The set that stands for these attributes: for new ones beyond the limit, the overflow. Entries
   * that are no attribute values, and those that metrics set by themselves, are left out.
   *
   * @param given those of the host.
   * @param own those of this package.
   */
  get(given: Attributes | null | undefined, limit: number, own: Attributes = NONE): AttributeSet {
    const text = textOf(given, textOf(own, ''));
    if (text === undefined) return this.#find(given, limit, own);
    const known = this.#byText.get(text);
    if (known !== undefined) return known;
    const set = this.#find(given, limit, own);
    if (set !== OVERFLOW && this.#byText.size < limit) this.#byText.set(text, set);
    return set;
  }

  /** The set that stands here for one that was found elsewhere. */
  adopt(set: AttributeSet, limit: number): AttributeSet {
    const known = this.#sets.get(set.key);
    if (known !== undefined || set.key === OVERFLOW.key) return known ?? OVERFLOW;
    if (this.#sets.size >= Math.min(limit, MAX_ATTRIBUTE_SETS)) {
      problems.overflow++;
      return OVERFLOW;
    }
    this.#sets.set(set.key, set);
    return set;
  }

  #find(given: Attributes | null | undefined, limit: number, own: Attributes): AttributeSet {
    const clean = { ...cleaned(given, RESERVED), ...cleaned(own, NO_NAMES) };
    return this.adopt(setOf(clean), limit);
  }
}

/** The same text for the same attributes, in whatever order they are. */
export function keyOf(attributes: Attributes): string {
  return JSON.stringify(Object.entries(attributes).sort(([a], [b]) => (a < b ? -1 : 1)));
}

const NONE: Attributes = {};
const NO_NAMES: ReadonlySet<string> = new Set();

/** The host's attributes with others over them; what cannot be read is left out. */
export function merged(below: unknown, above: unknown): Attributes {
  return Object.fromEntries([...entriesOf(below), ...entriesOf(above)]) as Attributes;
}

/**
 * A text of its own for each list of attributes, the lengths before what they are of; `undefined`
 * where a value is not a string, a boolean or a finite number, or cannot be read.
 *
 * @param start what it begins with.
 */
function textOf(
  attributes: Attributes | null | undefined,
  start: string | undefined,
): string | undefined {
  if (attributes === undefined || attributes === null) return start;
  if (start === undefined) return undefined;
  let text = start;
  try {
    if (!isRecord(attributes)) return undefined;
    for (const name of Object.keys(attributes)) {
      const value = attributes[name];
      if (!isPrimitive(value)) return undefined;
      const written = String(value);
      text += `${name.length} ${typeof value} ${written.length} ${name}${written}`;
    }
    return text;
  } catch {
    // A proxy or a getter of the host's.
    return undefined;
  }
}

function setOf(attributes: Attributes): AttributeSet {
  return { key: keyOf(attributes), attributes };
}

/** What there is of attribute values, as a copy. */
function cleaned(attributes: unknown, reserved: ReadonlySet<string>): Attributes {
  const entries: [string, AttributeValue][] = [];
  for (const [name, given] of entriesOf(attributes)) {
    if (given === undefined) continue;
    const value = reserved.has(name) ? undefined : copyOf(given);
    if (value !== undefined) entries.push([name, value]);
    else if (reserved.has(name)) {
      drop(
        `the metric attribute ${name} is set by the conventions; the one that was given is dropped`,
      );
    } else drop(NOT_A_VALUE);
  }
  return Object.fromEntries(entries);
}

const NOT_A_VALUE =
  'a metric attribute that is not a string, a finite number, a boolean or an array of them is dropped';

function drop(warning: string): void {
  problems.dropped_attribute++;
  warnOnce(warning);
}

/** The entries of what a host gave for attributes, each read once; `null` for what throws. */
function entriesOf(attributes: unknown): [string, unknown][] {
  if (attributes === undefined || attributes === null) return [];
  const record = attributes as Record<string, unknown>;
  const names = attempt(() => (isRecord(record) ? Object.keys(record) : undefined));
  if (names === undefined) {
    drop('metric attributes that are no object with a value for each name are left out');
    return [];
  }
  return names.map((name) => {
    const read = attempt(() => ({ value: record[name] }));
    return [name, read === undefined ? null : read.value];
  });
}

function isRecord(value: unknown): boolean {
  return typeof value === 'object' && !Array.isArray(value);
}

/** A copy of an attribute value; nothing of anything else. */
function copyOf(value: unknown): AttributeValue | undefined {
  if (isPrimitive(value)) return value;
  return attempt(() => {
    if (!Array.isArray(value)) return undefined;
    const items: unknown[] = Array.from({ length: value.length }, (_, index) => value[index]);
    const isUsable = items.every((item) => item == null || isPrimitive(item));
    return isUsable ? (items as AttributeValue) : undefined;
  });
}

function isPrimitive(value: unknown): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value);
}
