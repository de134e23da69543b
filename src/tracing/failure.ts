import { type Span, SpanStatusCode } from '@opentelemetry/api';
import { ATTR_ERROR_TYPE } from '../../semconv/attributes.js';
import { VerifyWindowError } from '../scheduler/error.js';
import type { SpanClock } from './span-clock.js';

/** What OpenTelemetry calls an error whose kind is not known. */
const OTHER = '_OTHER';

/** A name as code spells one. What is longer, or has anything else in it, was made at run time. */
const NAME_IN_CODE = /^[\w$]{1,64}$/;

/**
 * What kind of error a host's code threw, as a value of `error.type`: our own code, or the name of
 * the error's class. Never its message, nor what it was given as properties: they may hold
 * anything.
 */
export function errorTypeOf(error: unknown): string {
  try {
    if (!(error instanceof Error)) return OTHER;
    const name: unknown =
      error instanceof VerifyWindowError
        ? error.code
        : Object.getPrototypeOf(error).constructor.name;
    return typeof name === 'string' && NAME_IN_CODE.test(name) ? name : OTHER;
  } catch {
    // A proxy that throws, or a class without a constructor.
    return OTHER;
  }
}

/** Marks a span as failed, with the kind of the error and nothing of its content. */
export function markFailed(span: Span, errorType: string): void {
  span.setAttribute(ATTR_ERROR_TYPE, errorType);
  span.setStatus({ code: SpanStatusCode.ERROR });
}

/** Ends a span, if there is one; where its work failed, it says so. */
export function endSpan(span: Span | undefined, clock: SpanClock, errorType?: string): void {
  if (span === undefined) return;
  if (errorType !== undefined) markFailed(span, errorType);
  span.end(clock.now());
}
