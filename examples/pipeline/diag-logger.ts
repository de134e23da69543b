import type { DiagLogger } from '@opentelemetry/api';

/** Says on stderr what the SDK complains of, each complaint once: exports fail every few seconds. */
export const TO_STDERR: DiagLogger = {
  error: say,
  warn: say,
  info: () => {},
  debug: () => {},
  verbose: () => {},
};

const said = new Set<string>();

/** One line: the SDK hands over its errors as JSON, with their stacks. */
function say(text: string): void {
  let message = text;
  try {
    message = JSON.parse(text).message ?? text;
  } catch {
    // It is plain text.
  }
  if (said.has(message)) return;
  said.add(message);
  console.error(`telemetry: ${message}`);
}
