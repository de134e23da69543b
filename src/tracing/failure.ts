import { type Span, SpanStatusCode } from '@opentelemetry/api';
import { ATTR_ERROR_TYPE } from '../../semconv/attributes.js';
import { VerifyWindowError } from '../scheduler/error.js';

/**
 * What kind of error a host's code threw, as a value of `error.type`: our own code, or the name of
 * the error's class. Never its message, which may hold anything.
 */
export function errorTypeOf(error: unknown): string {
  if (error instanceof VerifyWindowError) return error.code;
  const name = error instanceof Error ? error.constructor.name : '';
  return name === '' ? '_OTHER' : name;
}

/** Marks a span as failed, with the kind of the error and nothing of its content. */
export function markFailed(span: Span, error: unknown): void {
  span.setAttribute(ATTR_ERROR_TYPE, errorTypeOf(error));
  span.setStatus({ code: SpanStatusCode.ERROR });
}
