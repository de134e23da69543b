import { fstatSync, writeFileSync } from 'node:fs';

/** The result could not be written, or not all of it. */
export class OutputError extends Error {}

/** What is said to a terminal or a pipe that is gone does not end the run. */
export function surviveClosedStreams(): void {
  process.stdout.on('error', () => {});
  process.stderr.on('error', () => {});
}

/**
 * Writes the result to stdout.
 *
 * @throws {OutputError} where not all of it could be written.
 */
export async function writeResult(text: string): Promise<void> {
  try {
    const { fd, isTTY } = process.stdout;
    const stats = fstatSync(fd);
    // A stream writes what fits onto a disk that is full, and does not tell.
    if (isTTY || stats.isFIFO() || stats.isSocket()) await writeToStream(text);
    else writeFileSync(fd, text);
  } catch (error) {
    throw new OutputError(`the result could not be written: ${(error as Error).message}`);
  }
}

function writeToStream(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => (error ? reject(error) : resolve()));
  });
}
