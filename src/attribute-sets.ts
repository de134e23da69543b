import type { Attributes, AttributeValue } from '@opentelemetry/api';
import { ATTR_OTEL_METRIC_OVERFLOW } from '../semconv/attributes.js';
import { refuseArgument } from './scheduler/error.js';

/** At depth 8 this stays below the 2,000 series for each metric at which the SDK cuts off. */
export const DEFAULT_MAX_ATTRIBUTE_SETS = 100;

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
   * that are no attribute values are left out.
   */
  get(attributes: Attributes | null | undefined, limit: number): AttributeSet {
    const text = textOf(attributes);
    if (text === undefined) return this.#find(attributes, limit);
    const known = this.#byText.get(text);
    if (known !== undefined) return known;
    const set = this.#find(attributes, limit);
    if (set !== OVERFLOW && this.#byText.size < limit) this.#byText.set(text, set);
    return set;
  }

  #find(attributes: Attributes | null | undefined, limit: number): AttributeSet {
    const { key, attributes: clean } = setOf(cleaned(attributes));
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    if (this.#sets.size >= limit) return OVERFLOW;
    const set = { key, attributes: structuredClone(clean) };
    this.#sets.set(key, set);
    return set;
  }
}

/** The same text for the same attributes, in whatever order they are. */
export function keyOf(attributes: Attributes): string {
  return JSON.stringify(Object.entries(attributes).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * A text of its own for each list of attributes, the lengths before what they are of; `undefined`
 * where a value is not a string, a boolean or a finite number.
 */
function textOf(attributes: Attributes | null | undefined): string | undefined {
  let text = '';
  for (const name of Object.keys(attributes ?? {})) {
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
  return Object.fromEntries(
    Object.entries(attributes ?? {}).filter(([, value]) => isAttributeValue(value)),
  );
}

function isAttributeValue(value: AttributeValue | undefined): boolean {
  if (Array.isArray(value)) return value.every((item) => item == null || isPrimitive(item));
  return isPrimitive(value);
}

function isPrimitive(value: unknown): boolean {
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value);
}
