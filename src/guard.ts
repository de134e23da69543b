import { diag } from '@opentelemetry/api';

/** Name of the instrumentation scope under which this package emits. */
export const SCOPE_NAME = 'llama-stage-otel';

/** Version of the instrumentation scope: that of the package. */
export const SCOPE_VERSION = '0.1.0';

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

  /** Reports the first error through the API's `diag`, and no other. It never throws. */
  readonly report = (error: unknown): void => {
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
