import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Report } from '../../examples/pipeline/report.js';

const ROOT = join(import.meta.dirname, '../..');
export const EXAMPLE = join(ROOT, 'build/examples/pipeline/main.js');

/** Runs the pipeline example as a user would, and returns what it reports. */
export async function runExample(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Report> {
  const all = [EXAMPLE, '--json', '--prometheus-port', '0', ...args];
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, all, { env: { ...process.env, ...env } });
  return JSON.parse(stdout);
}
