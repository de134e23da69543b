import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net';
import { describe, expect, test } from 'vitest';
import { isAlive, PROCESSES, Program, QUICK, reportOf } from './program.js';

const ENDLESS = ['--prometheus-port', '0', '--tokens', '4000', '--generations', '100'];

/** All numbers of a part of the report, and what stands where a number should. */
function figuresOf(part: object): unknown[] {
  return Object.values(part).flatMap((value) =>
    typeof value === 'object' && value !== null ? figuresOf(value) : [value],
  );
}

async function scrape(url: string): Promise<string> {
  return await (await fetch(url)).text();
}

/** How often a histogram was recorded, over all its attributes or by one stage. */
function countOf(scraped: string, histogram: string, stage?: number): number {
  const lines = scraped.split('\n').filter((line) => line.startsWith(`${histogram}_count{`));
  const label = stage === undefined ? '' : `llama_stage_stage_index="${stage}"`;
  const counts = lines.filter((line) => line.includes(label)).map((line) => line.split(' ').at(-1));
  return counts.reduce((sum, count) => sum + Number(count), 0);
}

/** The first of so many free ports in a row, below those that systems hand out by themselves. */
async function freePorts(count: number): Promise<number> {
  for (;;) {
    const port = randomInt(12_000, 30_000);
    const servers = Array.from({ length: count }, (_, index) => listen(port + index));
    const outcomes = await Promise.allSettled(servers);
    for (const outcome of outcomes) if (outcome.status === 'fulfilled') outcome.value.close();
    if (outcomes.every(({ status }) => status === 'fulfilled')) return port;
  }
}

async function listen(port: number): Promise<Server> {
  const server = createTcpServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

describe('the pipeline', PROCESSES, () => {
  test.each([
    ['--depth', '1'],
    ['--depth', '2', '--width', '1'],
    ['--depth', '6', '--stages', '2'],
    ['--depth', '16', '--width', '8', '--concurrency', '3', '--stages', '6'],
    ['--depth', '4', '--tokens', '1'],
  ])('gives token for token the output of the control with %s %s %s %s', async (...args) => {
    const report = await reportOf(args.filter((arg) => arg !== undefined));
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
    const { pipelined } = await reportOf(['--depth', '4', '--tokens', '120']);
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

  test('serves the metrics of every process, as long as it is held', async () => {
    const program = new Program([...QUICK, '--hold']);
    const [, urls = ''] = await program.said(/their metrics: (.+)\n/);
    const [, url = ''] = await program.said(/the run is over; (\S+)/);
    const scraped = await scrape(url);
    for (const run of ['control', 'pipelined']) {
      const generations = `gen_ai_server_request_duration_count{pipeline_run="${run}",.*} 3`;
      expect(scraped).toMatch(new RegExp(generations));
    }
    const windows = countOf(scraped, 'llama_stage_verify_window_duration');
    expect(windows).toBeGreaterThan(0);
    expect(countOf(scraped, 'llama_stage_stage_compute_duration', 0)).toBe(windows);
    expect(countOf(scraped, 'llama_stage_stage_downstream_wait_duration', 0)).toBe(windows);
    for (const [index, stageUrl] of urls.split(', ').entries()) {
      const stage = index + 1;
      const metrics = await scrape(stageUrl);
      expect(countOf(metrics, 'llama_stage_stage_compute_duration', stage)).toBe(windows);
      expect(metrics).toContain(`llama_stage_stage_id="stage-${stage}"`);
    }
    program.kill('SIGTERM');
    expect(await program.exitCode()).toBe(0);
  });

  test('takes the ports after that of the coordinator for the stages', async () => {
    const port = await freePorts(3);
    const program = new Program([...QUICK, '--prometheus-port', `${port}`, '--stages', '3']);
    expect(await program.exitCode(), program.stderr).toBe(0);
    expect(program.stderr).toContain(`metrics: http://127.0.0.1:${port}/metrics\n`);
    const [, urls = ''] = await program.said(/their metrics: (.+)\n/);
    expect(urls.split(', ')).toEqual([
      `http://127.0.0.1:${port + 1}/metrics`,
      `http://127.0.0.1:${port + 2}/metrics`,
    ]);
  });

  test('finds nothing at the same time where it does one thing after the other', async () => {
    const { control, pipelined } = await reportOf(['--depth', '4', '--concurrency', '1']);
    expect(control.q4.busySeconds).toBeGreaterThan(0);
    expect(control.q4.overlapSeconds).toBe(0);
    expect(control.q5.linkSeconds).toBeGreaterThan(0);
    expect(control.q5.hiddenSeconds).toBe(0);
    expect(pipelined.q4.overlapSeconds).toBeGreaterThan(0);
    expect(pipelined.q5.hiddenSeconds).toBeGreaterThan(0);
    for (const { q4, q5 } of [control, pipelined]) {
      expect(q4.overlapSeconds).toBeLessThanOrEqual(q4.busySeconds);
      expect(q4.meanStagesComputing).toBeLessThanOrEqual(4);
      expect(q5.hiddenSeconds + q5.exposedSeconds).toBeCloseTo(q5.linkSeconds);
    }
  });

  test('is not held up by an OTLP endpoint that is not there', async () => {
    const program = new Program(QUICK, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' });
    expect(await program.exitCode(), program.stderr).toBe(0);
    expect(program.stderr).toMatch(/^telemetry: .*ECONNREFUSED/m);
  });

  test('is not held up by an OTLP endpoint that does not answer', async () => {
    const silent = createTcpServer((socket) => socket.resume()).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const program = new Program(QUICK, { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` });
    const stages = await program.stageProcesses();
    expect(await program.exitCode(), program.stderr).toBe(0);
    expect(stages.filter(isAlive)).toEqual([]);
    silent.close();
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
    [['--prometheus-port', '65533'], '--prometheus-port 65533 leaves no port'],
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

  test('is refused where the port of a stage is taken', async () => {
    const port = await freePorts(3);
    const other = createServer().listen(port + 2, '127.0.0.1');
    await once(other, 'listening');
    const program = new Program(['--prometheus-port', `${port}`, '--stages', '3']);
    expect(await program.exitCode()).toBe(2);
    expect(program.stderr).toContain(`--prometheus-port ${port} cannot be used`);
    expect(program.stderr).toContain(`127.0.0.1:${port + 2}`);
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

  test('SIGINT ends it also where minutes of compute are queued', async () => {
    const program = new Program([...ENDLESS, '--concurrency', '64', '--stage-ms', '1000']);
    const stages = await program.stageProcesses();
    program.kill('SIGINT');
    expect(await program.exitCode()).toBe(130);
    expect(stages.filter(isAlive)).toEqual([]);
  });

  test('SIGINT ends it also where a stage hangs', async () => {
    const program = new Program(ENDLESS);
    const stages = await program.stageProcesses();
    process.kill(stages[1] as number, 'SIGSTOP');
    program.kill('SIGINT');
    expect(await program.exitCode()).toBe(130);
    expect(stages.filter(isAlive)).toEqual([]);
  });

  test('comes with the run', async () => {
    const program = new Program(QUICK);
    const stages = await program.stageProcesses();
    expect(await program.exitCode()).toBe(0);
    expect(stages.filter(isAlive)).toEqual([]);
  });

  test.each(['SIGINT', 'SIGTERM'] as const)('waits for %s where it is held', async (signal) => {
    const program = new Program([...QUICK, '--hold']);
    const stages = await program.stageProcesses();
    await program.said(/the run is over/);
    expect(stages.filter(isAlive)).toEqual(stages);
    program.kill(signal);
    expect(await program.exitCode()).toBe(0);
    expect(stages.filter(isAlive)).toEqual([]);
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
