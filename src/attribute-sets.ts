import type { Attributes, AttributeValue } from '@opentelemetry/api';
import { ATTR_OTEL_METRIC_OVERFLOW } from '../semconv/attributes.js';
import { COUNTED, METRIC_ATTRIBUTES } from '../semconv/counted.js';
import { problems, warnOnce } from './guard.js';
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

  #find(given: Attributes | null | undefined, limit: number, own: Attributes): AttributeSet {
    const { key, attributes: clean } = setOf({ ...cleaned(given), ...own });
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    if (this.#sets.size >= Math.min(limit, MAX_ATTRIBUTE_SETS)) {
      problems.overflow++;
      return OVERFLOW;
    }
    const set = { key, attributes: structuredClone(clean) };
    this.#sets.set(key, set);
    return set;
  }
}

/** The same text for the same attributes, in whatever order they are. */
export function keyOf(attributes: Attributes): string {
  return JSON.stringify(Object.entries(attributes).sort(([a], [b]) => (a < b ? -1 : 1)));
}

const NONE: Attributes = {};

/**
 * A text of its own for each list of attributes, the lengths before what they are of; `undefined`
 * where a value is not a string, a boolean or a finite number.
 *
 * @param start what it begins with.
 */
function textOf(
  attributes: Attributes | null | undefined,
  start: string | undefined,
): string | undefined {
  let text = start;
  for (const name of Object.keys(attributes ?? NONE)) {
    const value = attributes?.[name];
    if (!isPrimitive(value)) return undefined;
    const written = String(value);
    text += `${name.length} ${typeof value} ${written.length} ${name}${written}`;
  }
  return text;
}

function setOf(attributes: Attributes): AttributeSet {
  return { key: keyOf(attributes), attributes };
}

function cleaned(attributes: Attributes | null | undefined): Attributes {
  return Object.fromEntries(Object.entries(attributes ?? NONE).filter(isUsable));
}

function isUsable([name, value]: [string, AttributeValue | undefined]): boolean {
  if (value === undefined) return false;
  const isReserved = RESERVED.has(name);
  if (!isReserved && isAttributeValue(value)) return true;
  problems.dropped_attribute++;
  warnOnce(
    isReserved
      ? `the metric attribute ${name} is set by the conventions; the one that was given is dropped`
      : 'a metric attribute that is not a string, a finite number, a boolean or an array of them is dropped',
  );
  return false;
}

function isAttributeValue(value: AttributeValue | undefined): boolean {
  if (Array.isArray(value)) return value.every((item) => item == null || isPrimitive(item));
  return isPrimitive(value);
}

function isPrimitive(value: unknown): boolean {
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value);
}
