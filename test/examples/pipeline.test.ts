import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from 'vitest';
import type { Report } from '../../examples/pipeline/report.js';

const PROGRAM = fileURLToPath(new URL('../../build/examples/pipeline/main.js', import.meta.url));
const QUICK = [
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
const ENDLESS = ['--prometheus-port', '0', '--tokens', '4000', '--generations', '100'];

/** Each test starts processes, and a busy machine takes its time over that. */
const PROCESSES = { timeout: 60_000 };

const running = new Set<Program>();

/** The example as a process, with what it said so far. */
class Program {
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  stdout = '';
  stderr = '';

  constructor(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.#child = spawn(process.execPath, [PROGRAM, ...args], { env: { ...process.env, ...env } });
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

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }
}

afterEach(() => {
  for (const program of running) program.kill('SIGKILL');
  running.clear();
});

/** Whether a process runs; one that has ended and that nobody has reaped does not. */
function isAlive(pid: number): boolean {
  const { stdout } = spawnSync('ps', ['-o', 'stat=', '-p', `${pid}`], { encoding: 'utf8' });
  return stdout.trim() !== '' && !stdout.startsWith('Z');
}

/** All numbers of a part of the report, and what stands where a number should. */
function figuresOf(part: object): unknown[] {
  return Object.values(part).flatMap((value) =>
    typeof value === 'object' && value !== null ? figuresOf(value) : [value],
  );
}

async function reportOf(...args: string[]): Promise<Report> {
  const program = new Program([...QUICK, '--json', ...args]);
  expect(await program.exitCode(), program.stderr).toBe(0);
  // One object, and nothing else: JSON.parse takes no second one.
  return JSON.parse(program.stdout);
}

describe('the pipeline', PROCESSES, () => {
  test.each([
    ['--depth', '1'],
    ['--depth', '2', '--width', '1'],
    ['--depth', '6', '--stages', '2'],
    ['--depth', '16', '--width', '8', '--concurrency', '3', '--stages', '6'],
    ['--depth', '4', '--tokens', '1'],
  ])('gives token for token the output of the control with %s %s %s %s', async (...args) => {
    const report = await reportOf(...args.filter((arg) => arg !== undefined));
    expect(report.outputsEqual).toBe(true);
    for (const run of [report.control, report.pipelined]) {
      expect(run.q1.tokens).toBe(3 * report.parameters.tokens);
      expect(run.q3.timeShareByLevel.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1);
      expect(run.q6.staleDiscarded).toBe(run.q6.staleMarked);
      const { fullAcceptWindows, partialAcceptWindows, rejectWindows, unverifiedWindows } = run.q7;
      const retired = fullAcceptWindows + partialAcceptWindows + rejectWindows + unverifiedWindows;
      expect(retired + run.q6.staleDiscarded).toBe(run.q3.opened);
      const accepted = run.q7.shareAcceptedAtLeast.reduce((sum, share) => sum + share, 0);
      expect(accepted).toBeCloseTo(run.q7.meanAcceptedLength);
      expect(figuresOf(run).filter((figure) => !Number.isFinite(figure))).toEqual([]);
    }
    expect(report.control.q3.parallelFraction).toBe(0);
    expect(report.control.q6.staleDiscarded).toBe(0);
  });

  test('keeps several windows in flight, and burns some of them', async () => {
    const { pipelined } = await reportOf('--depth', '4', '--tokens', '120');
    expect(pipelined.q3.averageInFlight).toBeGreaterThan(1);
    expect(pipelined.q3.parallelFraction).toBeGreaterThan(0);
    expect(pipelined.q6.staleDiscarded).toBeGreaterThan(0);
    expect(pipelined.q7.acceptanceRate).toBeGreaterThan(0);
    expect(pipelined.q8.refillSuccesses).toBeGreaterThan(0);
  });

  test('takes the reverse fallback where it is told to, and the metrics say so', async () => {
    const program = new Program([...QUICK, '--reverse-return', '--hold']);
    const [, url = ''] = await program.said(/the run is over; (\S+)/);
    const scraped = await (await fetch(url)).text();
    expect(scraped).toMatch(/direct_returns_total\{.*reverse_fallback.*\} 3/);
    expect(scraped).toMatch(/direct_returns_total\{.*upstream_opened.*\} 0/);
    expect(program.stdout).toContain('9. Was the output right?');
    program.kill('SIGINT');
    expect(await program.exitCode()).toBe(0);
  });

  test('exports over OTLP where an endpoint is set', async () => {
    const paths: (string | undefined)[] = [];
    const collector = createServer((request, response) => {
      paths.push(request.url);
      request.resume().on('end', () => response.end());
    }).listen(0, '127.0.0.1');
    await once(collector, 'listening');
    const { port } = collector.address() as AddressInfo;
    const program = new Program(QUICK, { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` });
    expect(await program.exitCode(), program.stderr).toBe(0);
    expect(paths).toContain('/v1/metrics');
    collector.close();
  });

  test('is not held up by an OTLP endpoint that is not there', async () => {
    const program = new Program(QUICK, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' });
    expect(await program.exitCode(), program.stderr).toBe(0);
    expect(program.stderr).toMatch(/^telemetry: .*ECONNREFUSED/m);
  });
});

describe('the command line', PROCESSES, () => {
  test.each([
    [['--depth', '0'], "--depth must be an integer from 1 to 64, got '0'"],
    [['--depth', '2.5'], "--depth must be an integer from 1 to 64, got '2.5'"],
    [['--tokens', 'many'], "--tokens must be an integer from 1 to 4000, got 'many'"],
    [['--width', ''], "--width must be an integer from 1 to 64, got ''"],
    [['--stage-ms', '-1'], '--stage-ms'],
    [['--link-ms', 'NaN'], "--link-ms must be a number from 0 to 1000, got 'NaN'"],
    [['--stages', '1'], "--stages must be an integer from 2 to 16, got '1'"],
    [['--colour'], "Unknown option '--colour'"],
    [['extra'], "Unexpected argument 'extra'"],
  ])('is refused with %j', async (args, message) => {
    const program = new Program(args);
    expect(await program.exitCode()).toBe(2);
    expect(program.stderr).toContain(message);
    expect(program.stdout).toBe('');
  });

  test('is refused where the port is taken', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const program = new Program(['--prometheus-port', `${port}`]);
    expect(await program.exitCode()).toBe(2);
    expect(program.stderr).toContain(`--prometheus-port ${port} cannot be used`);
    other.close();
  });

  test('explains itself', async () => {
    const program = new Program(['--help']);
    expect(await program.exitCode()).toBe(0);
    expect(program.stdout).toContain('--reverse-return');
  });
});

describe('the end of a run', PROCESSES, () => {
  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s leaves no process behind', async (signal, code) => {
    const program = new Program(ENDLESS);
    const stages = await program.stageProcesses();
    program.kill(signal);
    expect(await program.exitCode()).toBe(code);
    await expect.poll(() => stages.filter(isAlive)).toEqual([]);
  });

  test('SIGINT ends it also while the stages start', async () => {
    const program = new Program(ENDLESS);
    await program.said(/metrics: http/);
    program.kill('SIGINT');
    // The stages hold the pipe of stderr: it closes, and this settles, once the last has ended.
    expect(await program.exitCode()).toBe(130);
    expect(program.stderr).not.toContain('error');
  });

  test('SIGINT ends it also where a stage hangs', async () => {
    const program = new Program(ENDLESS);
    const stages = await program.stageProcesses();
    process.kill(stages[1] as number, 'SIGSTOP');
    program.kill('SIGINT');
    expect(await program.exitCode()).toBe(130);
    expect(stages.filter(isAlive)).toEqual([]);
  });

  test('the stages end with the run, and only the endpoint is held', async () => {
    const program = new Program([...QUICK, '--hold']);
    const stages = await program.stageProcesses();
    await program.said(/the run is over/);
    await expect.poll(() => stages.filter(isAlive)).toEqual([]);
    program.kill('SIGTERM');
    expect(await program.exitCode()).toBe(0);
  });

  test.each([0, 1, 2])('stage process %i that dies ends the run and is named', async (index) => {
    const program = new Program(ENDLESS);
    const stages = await program.stageProcesses();
    process.kill(stages[index] as number, 'SIGKILL');
    expect(await program.exitCode()).toBe(1);
    expect(program.stderr).toContain(
      `(process ${stages[index]}) ended in the middle of the run: SIGKILL`,
    );
    await expect.poll(() => stages.filter(isAlive)).toEqual([]);
  });

  test('a coordinator that is killed takes its stages along', async () => {
    const program = new Program(ENDLESS);
    const stages = await program.stageProcesses();
    program.kill('SIGKILL');
    await program.exitCode();
    await expect.poll(() => stages.filter(isAlive)).toEqual([]);
  });
});
