import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { listeningPorts } from '../examples/processes.js';
import { Program } from '../examples/program.js';
import { ATTACKS } from '../examples/strangers.js';

const RUN = ['--prometheus-port', '0', '--json', '--generations', '12'];

/** What a run decides, whatever the time: the same in every run of the same generations. */
function decisionsOf(stdout: string) {
  const { control, outputsEqual, pipelined } = JSON.parse(stdout);
  const of = ({ q1, q3, q6, q7, q8 }: Record<string, Record<string, unknown>>) => ({
    tokens: q1?.tokens,
    opened: q3?.opened,
    epochs: q6?.recoveryEpochs,
    stale: q6?.staleDiscarded,
    q7,
    q8,
  });
  return { outputsEqual, control: of(control), pipelined: of(pipelined) };
}

describe('a run among strangers that try everything, over and over', () => {
  test('decides and says what an undisturbed one does', async () => {
    const undisturbed = new Program(RUN);
    expect(await undisturbed.exitCode(), undisturbed.stderr).toBe(0);

    const program = new Program(RUN);
    const stages = await program.stageProcesses();
    const ports = stages.flatMap(listeningPorts);
    let isOver = false;
    const end = program.exitCode().finally(() => {
      isOver = true;
    });
    let count = 0;
    const attackers = Object.values(ATTACKS).map(async (attack, index) => {
      while (!isOver) {
        await attack(ports[(index + count) % ports.length] ?? 0);
        // Some hundred a second: a flood would take the processors from the run, and not only the ports.
        await sleep(100);
        count++;
      }
    });
    expect(await end, program.stderr).toBe(0);
    await Promise.all(attackers);
    const speeds = [undisturbed, program].map(
      ({ stdout }) => JSON.parse(stdout).pipelined.q1.tokensPerSecond,
    );
    console.log(`${count} attacks; tokens per second ${speeds[1]}, undisturbed ${speeds[0]}`);
    expect(count).toBeGreaterThan(100);
    expect(program.stderr).not.toMatch(/^\s+at /m);
    expect(decisionsOf(program.stdout)).toEqual(decisionsOf(undisturbed.stdout));
  });
});
