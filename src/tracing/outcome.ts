import { type Span, SpanStatusCode } from '@opentelemetry/api';
import {
  ATTR_ERROR_TYPE,
  ERROR_TYPE_VALUES,
  type LLAMA_STAGE_GENERATION_OUTCOME_VALUES,
} from '../../semconv/attributes.js';
import { attempt } from '../guard.js';
import { OTHER_ERROR, VerifyWindowError } from '../scheduler/error.js';

/** How a generation ended: the values of `llama_stage.generation.outcome`. */
export type GenerationOutcome = (typeof LLAMA_STAGE_GENERATION_OUTCOME_VALUES)[number];

/** How a piece of the host's work ended. */
export interface WorkEnd {
  readonly outcome: GenerationOutcome;
  /** Of work that failed. */
  readonly errorType?: string;
}

export const COMPLETED: WorkEnd = { outcome: 'completed' };
/** Called off, by an AbortError or by leaving a stream early: no error. */
export const CANCELLED: WorkEnd = { outcome: 'cancelled' };
/** Never ended, and garbage-collected. */
export const ABANDONED: WorkEnd = { outcome: 'abandoned' };

/** How work ended that threw this. */
export function endBy(error: unknown): WorkEnd {
  return isAbort(error) ? CANCELLED : { outcome: 'failed', errorType: errorTypeOf(error) };
}

/** Ends a span; where its work failed, it says so. */
export function endSpan(span: Span, end: WorkEnd, time: Parameters<Span['end']>[0]): void {
  if (end.errorType !== undefined) markFailed(span, end.errorType);
  span.end(time);
}

/** Marks a span as failed, with the kind of the error and nothing of its content. */
export function markFailed(span: Span, errorType: string): void {
  span.setAttribute(ATTR_ERROR_TYPE, errorType);
  span.setStatus({ code: SpanStatusCode.ERROR });
}

/** An `AbortSignal` rejects with an error of this name; one that timed out, with another. */
function isAbort(error: unknown): boolean {
  return attempt(() => error instanceof Error && error.name === 'AbortError') === true;
}

/** How many kinds of errors a process tells apart: names may be made at run time. */
const MAX_ERROR_TYPES = 64;
/** Those that were told. Our own are, whatever came before. */
const errorTypes = new Set<string>([...ERROR_TYPE_VALUES, OTHER_ERROR]);

/**
 * A name as code spells one. What is longer, or has anything else in it, was made at run time; what
 * is shorter was left by a minifier.
 */
const NAME = /^[A-Za-z_$][\w$]{3,63}$/;

/** Codes of Node's own errors and of the operating system's: `ERR_INVALID_ARG_TYPE`, `ECONNRESET`. */
const CODE = /^E[A-Z][A-Z0-9_]{1,62}$/;

/** The name of a class, likewise. */
const CLASS_NAME = /^[A-Z][\w$]{3,63}$/;

/**
 * What kind of error a host's code threw, as a value of `error.type`: our own code; else the name of
 * the error, the code of a system error, or the name of its class. Never its message, nor any other
 * of its properties: they may hold anything.
 */
export function errorTypeOf(error: unknown): string {
  const type = nameOf(error) ?? OTHER_ERROR;
  if (errorTypes.has(type)) return type;
  if (errorTypes.size >= MAX_ERROR_TYPES) return OTHER_ERROR;
  errorTypes.add(type);
  return type;
}

function nameOf(value: unknown): string | undefined {
  if (!attempt(() => value instanceof Error)) return undefined;
  const error = value as NodeJS.ErrnoException;
  if (attempt(() => error instanceof VerifyWindowError)) {
    return ERROR_TYPE_VALUES.find((code) => code === error.code);
  }
  const name = textOf(() => error.name, NAME);
  if (name !== undefined && name !== 'Error') return name;
  const className = () => Object.getPrototypeOf(error).constructor.name;
  return textOf(() => error.code, CODE) ?? textOf(className, CLASS_NAME);
}

/** What `read` gives, if it is a text of this form. */
function textOf(read: () => unknown, form: RegExp): string | undefined {
  const text = attempt(read);
  return typeof text === 'string' && form.test(text) ? text : undefined;
}
