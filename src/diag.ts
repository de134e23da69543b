import { diag } from '@opentelemetry/api';

/** A function that reports the first error it is given through the API's `diag`, and no other. */
export function reportOnce(what: string): (error: unknown) => void {
  let reported = false;
  return (error) => {
    if (reported) return;
    reported = true;
    diag.error(`llama-stage-otel: ${what}; further errors of this kind are not reported`, error);
  };
}
