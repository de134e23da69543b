import { openSync } from 'node:fs';
import { request } from 'node:http';
import { describe, expect, test } from 'vitest';
import { listeningPorts, stagesOf } from './processes.js';
import { isAlive, PROCESSES, Program, QUICK } from './program.js';
import { ATTACKS } from './strangers.js';

const ENDLESS = ['--prometheus-port', '0', '--tokens', '4000', '--generations', '100'];
const STACK = /^\s+at /m;

/** The ports of the first stage process that are not for its metrics. */
async function portsOf(program: Program): Promise<number[]> {
  const [stage = 0] = await program.stageProcesses();
  const [, urls = ''] = await program.said(/their metrics: (.+)\n/);
  const metrics = new Set(urls.split(', ').map((url) => Number(new URL(url).port)));
  return listeningPorts(stage).filter((port) => !metrics.has(port));
}

describe('a stranger', PROCESSES, () => {
  test('is thrown out, whatever it does, and the run goes on as if it had not been there', async () => {
    const program = new Program([...QUICK, '--tokens', '120', '--json']);
    const [port = 0] = await portsOf(program);
    await Promise.all(Object.values(ATTACKS).map((attack) => attack(port)));
    expect(await program.exitCode(), program.stderr).toBe(0);
    expect(JSON.parse(program.stdout).outputsEqual).toBe(true);
    expect(program.stderr).not.toMatch(STACK);
  });

  test('is thrown out by the coordinator, too, where predictions return to it', async () => {
    const program = new Program([...QUICK, '--tokens', '120', '--json', '--reverse-return']);
    await program.stageProcesses();
    const ports = listeningPorts(program.pid);
    for (const port of ports) {
      await Promise.all(Object.values(ATTACKS).map((attack) => attack(port)));
    }
    expect(await program.exitCode(), program.stderr).toBe(0);
    expect(JSON.parse(program.stdout).outputsEqual).toBe(true);
    expect(program.stderr).not.toMatch(STACK);
  });
});

describe('the Prometheus endpoint', PROCESSES, () => {
  test.each([
    ['GET', '/metrics', '127.0.0.1', 200],
    ['GET', '/metrics?x=1', 'localhost:9464', 200],
    ['HEAD', '/metrics', '[::1]:9464', 200],
    ['POST', '/metrics', '127.0.0.1', 405],
    ['DELETE', '/metrics', '127.0.0.1', 405],
    ['GET', '/', '127.0.0.1', 404],
    ['GET', '/metrics/x', '127.0.0.1', 404],
    ['GET', '/metrics', 'rebound.example', 403],
    ['GET', '/metrics', '127.0.0.1.example', 403],
    ['GET', '/metrics', '10.0.0.1', 403],
    ['GET', '/metrics', ' ', 403],
  ])('answers %s %s for host %s with %i', async (method, path, host, status) => {
    const program = new Program(ENDLESS);
    const [, url = ''] = await program.said(/metrics: (http\S+)/);
    const { hostname, port } = new URL(url);
    const actual = await new Promise((resolve, reject) => {
      request({ hostname, port, method, path, headers: { host } }, (response) => {
        response.resume();
        resolve(response.statusCode);
      })
        .on('error', reject)
        .end();
    });
    expect(actual).toBe(status);
  });
});

describe('a stage that is stopped', PROCESSES, () => {
  test('in the middle of a run is named, with the window that waits for it', async () => {
    const program = new Program([...ENDLESS, '--deadline-ms', '1500']);
    const stages = await program.stageProcesses();
    await program.said(/their metrics/);
    process.kill(stages[1] ?? 0, 'SIGSTOP');
    expect(await program.exitCode()).toBe(1);
    expect(program.stderr).toMatch(
      new RegExp(
        `error: window \\d+ of generation \\d+ had no reply within 1500 ms: stage 2 \\(process ${stages[1]}\\) does not answer`,
      ),
    );
    expect(stages.filter(isAlive)).toEqual([]);
  });

  test('while it starts is named', async () => {
    const program = new Program([...ENDLESS, '--deadline-ms', '1500']);
    await program.said(/metrics: http/);
    await expect.poll(() => stagesOf(program.pid), { interval: 1 }).toHaveLength(1);
    const [stage = 0] = stagesOf(program.pid);
    process.kill(stage, 'SIGSTOP');
    expect(await program.exitCode()).toBe(1);
    expect(program.stderr).toContain(`stage 3 (process ${stage}) did not start within 1500 ms`);
    expect(isAlive(stage)).toBe(false);
  });
});

describe('a stage that dies while the run is held', PROCESSES, () => {
  test('ends the program, and is named', async () => {
    const program = new Program([...QUICK, '--hold']);
    const stages = await program.stageProcesses();
    await program.said(/the run is over/);
    process.kill(stages[2] ?? 0, 'SIGKILL');
    expect(await program.exitCode()).toBe(1);
    expect(program.stderr).toContain(`stage 3 (process ${stages[2]}) ended`);
  });
});

describe('a signal', PROCESSES, () => {
  test.each([
    ['SIGHUP', 129],
    ['SIGINT', 130],
    ['SIGQUIT', 131],
    ['SIGTERM', 143],
  ] as const)('%s to all processes gives one clear line, and its code', async (signal, code) => {
    const program = new Program(ENDLESS, {}, { detached: true });
    const stages = await program.stageProcesses();
    process.kill(-program.pid, signal);
    expect(await program.exitCode()).toBe(code);
    expect(program.stderr).toContain(`stopped by ${signal}\n`);
    expect(program.stderr).not.toMatch(/error|ECONN/);
    expect(stages.filter(isAlive)).toEqual([]);
  });

  test.each(['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'] as const)(
    '%s to one stage ends the run, and the stage is named',
    async (signal) => {
      const program = new Program(ENDLESS);
      const stages = await program.stageProcesses();
      process.kill(stages[0] ?? 0, signal);
      expect(await program.exitCode()).toBe(1);
      expect(program.stderr).toContain(
        `error: stage 1 (process ${stages[0]}) was told to end by ${signal}`,
      );
      expect(program.stderr).not.toMatch(STACK);
      expect(stages.filter(isAlive)).toEqual([]);
    },
  );
});

describe('the result', PROCESSES, () => {
  test('that nobody reads is said to be lost', async () => {
    const program = new Program([...QUICK, '--json']);
    program.closeStdout();
    expect(await program.exitCode()).toBe(1);
    expect(program.stderr).toContain('error: the result could not be written: ');
    expect(program.stderr).not.toMatch(STACK);
  });

  test('that does not fit onto the disk is said to be lost', async () => {
    const program = new Program(QUICK, {}, { stdout: openSync('/dev/full', 'w') });
    expect(await program.exitCode()).toBe(1);
    expect(program.stderr).toContain('error: the result could not be written: ENOSPC');
  });

  test('is whole where nobody reads what is said beside it', async () => {
    const program = new Program([...QUICK, '--json']);
    program.closeStderr();
    expect(await program.exitCode()).toBe(0);
    expect(JSON.parse(program.stdout).outputsEqual).toBe(true);
  });
});

test('without telemetry the same pipeline runs, and what metrics tell is not made up', async () => {
  const program = new Program([...QUICK, '--json', '--telemetry', 'off']);
  expect(await program.exitCode(), program.stderr).toBe(0);
  const { control, outputsEqual, pipelined } = JSON.parse(program.stdout);
  expect(outputsEqual).toBe(true);
  expect(pipelined.q1.tokensPerSecond).toBeGreaterThan(0);
  expect([control.q3.opened, pipelined.q6.staleFraction, pipelined.q7.acceptanceRate]).toEqual([
    null,
    null,
    null,
  ]);
  expect(program.stderr).not.toContain('metrics: http');
}, 60_000);
