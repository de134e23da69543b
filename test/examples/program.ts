import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, expect } from 'vitest';
import type { Report } from '../../examples/pipeline/report.js';

const PROGRAM = fileURLToPath(new URL('../../build/examples/pipeline/main.js', import.meta.url));
export const QUICK = [
  '--prometheus-port',
  '0',
  '--tokens',
  '40',
  '--generations',
  '3',
  '--stage-ms',
  '1',
  '--link-ms',
  '1',
];

/** Each test starts processes, and a busy machine takes its time over that. */
export const PROCESSES = { timeout: 60_000 };

const running = new Set<Program>();

/** The example as a process, with what it said so far. */
export class Program {
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  stdout = '';
  stderr = '';

  /** @param options `detached` gives it a process group of its own; `stdout` is a file to write to. */
  constructor(
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
    { detached = false, stdout }: { readonly detached?: boolean; readonly stdout?: number } = {},
  ) {
    this.#child = spawn(process.execPath, [PROGRAM, ...args], {
      env: { ...process.env, ...env },
      detached,
      stdio: ['ignore', stdout ?? 'pipe', 'pipe'],
    });
    this.#child.stdout?.on('data', (chunk) => (this.stdout += chunk));
    this.#child.stderr?.on('data', (chunk) => (this.stderr += chunk));
    this.#ended = once(this.#child, 'close').then(() => undefined);
    running.add(this);
  }

  /** The exit code, once the process has ended and everything it said is read. */
  async exitCode(): Promise<number | null> {
    await this.#ended;
    return this.#child.exitCode;
  }

  /** Waits until the program has said something on stderr, and returns the match. */
  async said(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.stderr);
      if (match !== null) return match;
      if (this.#child.exitCode !== null) throw new Error(`ended without a word: ${this.stderr}`);
      if (this.#child.stderr !== null)
        await Promise.race([once(this.#child.stderr, 'data'), this.#ended]);
    }
  }

  async stageProcesses(): Promise<number[]> {
    const [, ids = ''] = await this.said(/stage processes: ([\d, ]+)\n/);
    return ids.split(', ').map(Number);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  closeStdout(): void {
    this.#child.stdout?.destroy();
  }

  closeStderr(): void {
    this.#child.stderr?.destroy();
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }
}

afterEach(() => {
  for (const program of running) program.kill('SIGKILL');
  running.clear();
});

/** What a run that is short, and ends well, reports. */
export async function reportOf(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Report> {
  const program = new Program([...QUICK, '--json', ...args], env);
  expect(await program.exitCode(), program.stderr).toBe(0);
  // One object, and nothing else: JSON.parse takes no second one.
  return JSON.parse(program.stdout);
}

/** Whether a process runs; one that has ended and that nobody has reaped does not. */
export function isAlive(pid: number): boolean {
  const { stdout } = spawnSync('ps', ['-o', 'stat=', '-p', `${pid}`], { encoding: 'utf8' });
  return stdout.trim() !== '' && !stdout.startsWith('Z');
}
