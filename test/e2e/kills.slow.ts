import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { stagesOf } from '../examples/processes.js';
import { isAlive } from '../examples/program.js';

const PROGRAM = fileURLToPath(new URL('../../build/examples/pipeline/main.js', import.meta.url));
const DEADLINE_MS = 2500;
const RUN = `--prometheus-port 0 --tokens 4000 --generations 100 --deadline-ms ${DEADLINE_MS}`;

const KILLS = 200;
const AT_A_TIME = 4;

/** The waits of a run that ends: the deadline, a ping, and what stages may take to end. */
const LIMIT_MS = DEADLINE_MS + 1000 + 3000 + 5000;

/** When a process is killed, in milliseconds after the start; by then some have not begun to listen. */
const LATEST_MS = 2000;

const ORDINARY = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

type Target = 'coordinator' | 'stage' | 'all';
type Plan = { readonly target: Target; readonly signal: NodeJS.Signals; readonly afterMs: number };

/** The same plans in every run of the test. */
function* plans(): Generator<Plan> {
  let seed = 42;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  for (let index = 0; index < KILLS; index++) {
    const target = (['coordinator', 'stage', 'stage', 'all'] as const)[random(4)] ?? 'stage';
    // A coordinator that is stopped waits until somebody lets it go on: that is what stopping is.
    const signals = target === 'stage' ? [...ORDINARY, 'SIGKILL', 'SIGSTOP'] : ORDINARY;
    const signal = (signals[random(signals.length)] ?? 'SIGTERM') as NodeJS.Signals;
    yield { target, signal, afterMs: 150 + random(LATEST_MS) };
  }
}

async function carryOut({ afterMs, signal, target }: Plan) {
  const child = spawn(process.execPath, [PROGRAM, ...RUN.split(' ')], {
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const pid = child.pid ?? 0;
  let stderr = '';
  child.stderr.on('data', (chunk) => (stderr += chunk));
  const ended = once(child, 'close');
  await sleep(afterMs);
  const stages = stagesOf(pid);
  const stage = stages[Math.floor(afterMs) % Math.max(1, stages.length)];
  const victim = target === 'all' ? -pid : target === 'coordinator' ? pid : stage;
  if (victim !== undefined) process.kill(victim, signal);
  else child.kill('SIGTERM');
  const known = new Set([...stages, ...stagesOf(pid)]);
  const timer = setTimeout(() => process.kill(-pid, 'SIGKILL'), LIMIT_MS);
  const [code, endedBy] = await ended;
  clearTimeout(timer);
  await sleep(100);
  return { code, endedBy, stderr, victim, left: [...known].filter(isAlive) };
}

test(`${KILLS} kills, stops and signals each end with a cause, the right code, in time, and nothing left`, async () => {
  const queue = plans();
  const wrong: string[] = [];
  let count = 0;
  const worker = async () => {
    for (const plan of queue) {
      const { code, endedBy, left, stderr, victim } = await carryOut(plan);
      const { signal, target } = plan;
      count++;
      const isNamed =
        target === 'stage' && victim !== undefined
          ? code === 1 && stderr.includes(`error: `) && stderr.includes(`(process ${victim})`)
          : // Before it can listen, a signal ends a process by itself.
            endedBy === signal ||
            (code === 128 + (constants.signals[signal] ?? 0) &&
              stderr.includes(`stopped by ${signal}`)) ||
            victim === undefined;
      const isClean = !/^\s+at /m.test(stderr) && left.length === 0 && endedBy !== 'SIGKILL';
      if (!isNamed || !isClean) {
        wrong.push(`${JSON.stringify(plan)}: code ${code}, ${endedBy}, left ${left}\n${stderr}`);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, worker));
  console.log(`${count} killed, stopped or signalled`);
  expect(wrong.join('\n')).toBe('');
  expect(count).toBe(KILLS);
}, 1_800_000);
