import type { Attributes, AttributeValue } from '@opentelemetry/api';
import { ATTR_OTEL_METRIC_OVERFLOW } from '../../semconv/attributes.js';
import { describe } from '../scheduler/describe.js';
import { VerifyWindowError } from '../scheduler/error.js';
import { AttributeSet } from './attribute-set.js';

/** At depth 8 this stays below the 2,000 series for each metric at which the SDK cuts off. */
export const DEFAULT_MAX_ATTRIBUTE_SETS = 100;

/** The attribute sets of a bridge: at most `limit`, and one more for whatever comes after. */
export class AttributeSets implements Iterable<AttributeSet> {
  #limit = DEFAULT_MAX_ATTRIBUTE_SETS;
  readonly #sets = new Map<string, AttributeSet>();
  #overflow: AttributeSet | undefined;

  /** @throws {VerifyWindowError} `invalid_argument` for a limit that is no integer of at least 1. */
  constructor(limit?: number) {
    if (limit !== undefined) this.setLimit(limit);
  }

  /** Sets that there are already stay. */
  setLimit(limit: number): void {
    if (!Number.isSafeInteger(limit) || limit < 1) {
      throw new VerifyWindowError(
        'invalid_argument',
        `maxAttributeSets must be an integer of at least 1, got ${describe(limit)}`,
      );
    }
    this.#limit = limit;
  }

  /** The set that stands for these attributes. Entries that are no attribute values are left out. */
  get(attributes: Attributes): AttributeSet {
    const entries = Object.entries(attributes)
      .filter(([, value]) => isAttributeValue(value))
      .sort(([a], [b]) => (a < b ? -1 : 1));
    const key = JSON.stringify(entries);
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    if (this.#sets.size >= this.#limit) {
      this.#overflow ??= new AttributeSet({ [ATTR_OTEL_METRIC_OVERFLOW]: true });
      return this.#overflow;
    }
    const set = new AttributeSet(structuredClone(Object.fromEntries(entries)));
    this.#sets.set(key, set);
    return set;
  }

  *[Symbol.iterator](): Iterator<AttributeSet> {
    yield* this.#sets.values();
    if (this.#overflow !== undefined) yield this.#overflow;
  }
}

function isAttributeValue(value: AttributeValue | undefined): boolean {
  if (Array.isArray(value)) return value.every((item) => item == null || isPrimitive(item));
  return isPrimitive(value);
}

function isPrimitive(value: unknown): boolean {
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value);
}
