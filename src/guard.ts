import { diag } from '@opentelemetry/api';
import { LLAMA_STAGE_TELEMETRY_PROBLEM_VALUES } from '../semconv/attributes.js';

/** Name of the instrumentation scope under which this package emits. */
export const SCOPE_NAME = 'llama-stage-otel';

/** Version of the instrumentation scope: that of the package. */
export const SCOPE_VERSION = '0.1.0';

/** Names the conventions that the scope follows, and their version. */
export const SCHEMA_URL = `https://llama-stage-otel.invalid/schemas/${SCOPE_VERSION}`;

/** A kind of trouble of the telemetry itself: `llama_stage.telemetry.problem`. */
export type Problem = (typeof LLAMA_STAGE_TELEMETRY_PROBLEM_VALUES)[number];

type Problems = Record<Problem, number>;

/** Shared by all copies of this package in the process, as a process has one telemetry. */
const PROBLEMS = Symbol.for('llama-stage-otel.problems@1');
const onGlobal = globalThis as { [PROBLEMS]?: Problems };
onGlobal[PROBLEMS] ??= Object.fromEntries(
  LLAMA_STAGE_TELEMETRY_PROBLEM_VALUES.map((problem) => [problem, 0]),
) as Problems;

/** How many problems of each kind there were in this process. */
export const problems: Problems = onGlobal[PROBLEMS];

/** Telemetry that runs within the host's own calls: where it fails, the host does not. */
export class Guard {
  readonly #what: string;
  #hasReported = false;

  constructor(what: string) {
    this.#what = what;
  }

  /** What `act` returns; nothing where it throws, which is reported. */
  run<Result>(act: () => Result): Result | undefined {
    try {
      return act();
    } catch (error) {
      this.report(error);
      return undefined;
    }
  }

  /** Counts an error, and reports the first one through the API's `diag`. It never throws. */
  readonly report = (error: unknown): void => {
    problems.failure++;
    if (this.#hasReported) return;
    this.#hasReported = true;
    try {
      diag.error(
        `llama-stage-otel: ${this.#what}; further errors of this kind are not reported`,
        error,
      );
    } catch {
      // The logger is the host's, and its last way to hear of anything.
    }
  };
}

/** The warnings that were given: each is given once. */
const given = new Set<string>();

/** Warns through the API's `diag` of what is ignored, once for each text. It never throws. */
export function warnOnce(text: string): void {
  if (given.has(text)) return;
  given.add(text);
  try {
    diag.warn(`llama-stage-otel: ${text}`);
  } catch {
    // As above.
  }
}

/** What `read` gives; nothing where a proxy, a getter or a missing part of a value throws. */
export function attempt<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
