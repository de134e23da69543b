import type {
  ERROR_TYPE_VALUE_CLOSED,
  ERROR_TYPE_VALUE_DEPTH_EXCEEDED,
  ERROR_TYPE_VALUE_ID_OVERFLOW,
  ERROR_TYPE_VALUE_INVALID_ARGUMENT,
  ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER,
  ERROR_TYPE_VALUE_REPLY_WITHOUT_WINDOW,
} from '../../semconv/attributes.js';

/** Why a call was refused: the values of `error.type` that this package emits. */
export type VerifyWindowErrorCode =
  | typeof ERROR_TYPE_VALUE_DEPTH_EXCEEDED
  | typeof ERROR_TYPE_VALUE_ID_OVERFLOW
  | typeof ERROR_TYPE_VALUE_REPLY_WITHOUT_WINDOW
  | typeof ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER
  | typeof ERROR_TYPE_VALUE_INVALID_ARGUMENT
  | typeof ERROR_TYPE_VALUE_CLOSED;

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
