import { diag } from '@opentelemetry/api';

/**
 * A function that reports the first error it is given through the API's `diag`, and no other. It
 * never throws.
 */
export function reportOnce(what: string): (error: unknown) => void {
  let reported = false;
  return (error) => {
    if (reported) return;
    reported = true;
    try {
      diag.error(`llama-stage-otel: ${what}; further errors of this kind are not reported`, error);
    } catch {
      // The logger is the host's, and its last way to hear of anything.
    }
  };
}
