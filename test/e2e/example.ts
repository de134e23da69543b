import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Report } from '../../examples/pipeline/report.js';

const EXAMPLE = join(import.meta.dirname, '../../build/examples/pipeline/main.js');

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

/** A run that is over, while its processes still serve their metrics. */
export interface HeldExample {
  readonly report: Report;
  stop(): Promise<void>;
}

/** Runs the example, and holds it: the coordinator serves on `port`, the stages on those after it. */
export async function holdExample(
  port: number,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<HeldExample> {
  const all = [EXAMPLE, '--json', '--prometheus-port', `${port}`, '--hold', ...args];
  const child = spawn(process.execPath, all, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'close');
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  while (!stderr.includes('the run is over')) {
    await Promise.race([once(child.stderr, 'data'), ended]);
    if (child.exitCode !== null) throw new Error(`the example ended: ${stderr}`);
  }
  return {
    report: JSON.parse(stdout),
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}
