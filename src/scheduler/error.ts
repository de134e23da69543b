import type { ERROR_TYPE_VALUES } from '../../semconv/attributes.js';

/** Why a call was refused: the values of `error.type` that this package emits. */
export type VerifyWindowErrorCode = (typeof ERROR_TYPE_VALUES)[number];

/** What OpenTelemetry calls an error whose kind is not known. */
export const OTHER_ERROR = '_OTHER';

/** A refused call. Whatever was refused changed nothing but the count of errors. */
export class VerifyWindowError extends Error {
  override readonly name = 'VerifyWindowError';
  /** What was wrong, as a value of `error.type`: low in cardinality and stable. */
  readonly code: VerifyWindowErrorCode;

  constructor(code: VerifyWindowErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Refuses an argument: `what` must be `allowed`. */
export function refuseArgument(what: string, allowed: string, value: unknown): never {
  throw new VerifyWindowError(
    'invalid_argument',
    `${what} must be ${allowed}, got ${describeWithoutContent(value)}`,
  );
}

/** What a value is, without repeating unbounded or private content of it. */
export function describeWithoutContent(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return `a value of type ${typeof value}`;
}
