import { constants } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { PipelineTelemetry } from 'llama-stage-otel';
import { type Arguments, helpText, readArguments, UsageError } from './arguments.js';
import { Chain, ChainFailure } from './chain.js';
import { measure, RUN_ATTRIBUTE } from './measurements.js';
import { OutputError, surviveClosedStreams, writeResult } from './output.js';
import { Progress } from './progress.js';
import { type Report, renderTable } from './report.js';
import { type RunResult, run } from './run.js';
import { identifyStage } from './stage-identity.js';
import { TableReader } from './table-reader.js';
import { Telemetry } from './telemetry.js';

surviveClosedStreams();
let telemetry: Telemetry | undefined;
let chain: Chain | undefined;
const progress = new Progress();

try {
  const args = readArguments(process.argv.slice(2));
  if (args === undefined) await writeResult(`${helpText()}\n`);
  else process.exitCode = await main(args);
} catch (error) {
  progress.interrupt();
  const isExpected = [UsageError, ChainFailure, OutputError].some((kind) => error instanceof kind);
  if (!isExpected) throw error;
  console.error(`error: ${(error as Error).message}`);
  process.exitCode = error instanceof UsageError ? 2 : 1;
} finally {
  await stop();
}

async function main(args: Arguments): Promise<number> {
  const interrupted = onSignal();
  const { prometheusPort, stages } = args;
  const table = new TableReader();
  if (args.telemetry === 'on') {
    const stage = identifyStage(0, stages);
    telemetry = await Telemetry.start({ stage, prometheusPort, readers: [table] });
  }
  console.error(describe(args, telemetry?.metricsUrl));
  const work = compare(args, table);
  // After an interrupt the run is torn down under it, and what it then says is of no interest.
  work.catch(() => {});
  const outcome = await Promise.race([work, interrupted]);
  if (typeof outcome === 'number') {
    progress.interrupt();
    return outcome;
  }

  await writeResult(`${args.json ? JSON.stringify(outcome) : `\n${renderTable(outcome)}`}\n`);
  if (args.hold) {
    const held = [telemetry?.metricsUrl, 'the stages'].filter((what) => what !== undefined);
    console.error(`\nthe run is over; ${held.join(' and ')} stay up until Ctrl-C`);
    await Promise.race([interrupted, chain?.failure]);
  }
  return outcome.outputsEqual ? 0 : 1;
}

/** The control at depth 1, and then the same generations at the wanted depth, on one chain. */
async function compare(args: Arguments, table: TableReader): Promise<Report> {
  // It is known before it starts, so that an interrupt meanwhile finds the processes to end.
  const telemetry = new PipelineTelemetry();
  chain = new Chain(args, telemetry);
  await chain.start();
  console.error(`stage processes: ${chain.processIds.join(', ')}`);
  if (args.telemetry === 'on') console.error(`their metrics: ${chain.metricsUrls.join(', ')}`);
  const cpuMsBefore = await chain.cpuMs();
  const shared = { args, chain, telemetry };
  const control = await run({
    ...shared,
    name: 'control',
    depth: 1,
    firstId: 0,
    onFinished: (finished) => progress.step('control, depth 1', finished, args.generations),
  });
  const pipelined = await run({
    ...shared,
    name: 'pipelined',
    depth: args.depth,
    firstId: args.generations,
    onFinished: (finished) => progress.step(`depth ${args.depth}`, finished, args.generations),
  });

  const outputsEqual = compareOutputs(control, pipelined, telemetry);
  const cpuMs = await chain.cpuMs();
  const windows = chain.windowsVerified;
  const collected = args.telemetry === 'on' ? await table.read() : undefined;
  const { json, hold, prometheusPort, ...parameters } = args;
  const report = {
    parameters,
    cpuMsPerWindow: cpuMs.map((ms, index) => (ms - (cpuMsBefore[index] ?? 0)) / windows),
    control: measure('control', collected, control),
    pipelined: measure('pipelined', collected, pipelined),
    outputsEqual,
  };
  const speedup = report.pipelined.q1.tokensPerSecond / report.control.q1.tokensPerSecond;
  return { ...report, speedup };
}

/** Compares each generation token for token with the same one of the control, and has it counted. */
function compareOutputs(
  control: RunResult,
  pipelined: RunResult,
  telemetry: PipelineTelemetry,
): boolean {
  const results = pipelined.outputs.map(({ tokens }, index) => {
    const isEqual = isDeepStrictEqual(tokens, control.outputs[index]?.tokens);
    telemetry.recordControlComparison(isEqual, { [RUN_ATTRIBUTE]: 'pipelined' });
    return isEqual;
  });
  return results.every(Boolean);
}

/** The exit code that a signal asks for, once it comes. A second one does not wait for anything. */
function onSignal(): Promise<number> {
  return new Promise((resolve) => {
    let isStopping = false;
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const) {
      process.on(signal, () => {
        const exitCode = 128 + constants.signals[signal];
        if (isStopping) process.exit(exitCode);
        isStopping = true;
        progress.interrupt();
        console.error(`stopped by ${signal}`);
        resolve(exitCode);
      });
    }
  });
}

async function stop(): Promise<void> {
  chain?.close();
  // By the next turn the generations that this stopped have ended their spans.
  await nextTurn();
  await telemetry?.shutdown();
}

function describe(args: Arguments, url: string | undefined): string {
  return [
    `${args.generations} generations of ${args.tokens} tokens, ${args.concurrency} at a time, windows of ${args.width} candidates`,
    `${args.stages} stages, each simulated at ${args.stageMs} ms for a window; links at ${args.linkMs} ms`,
    `predictions return over ${args.reverseReturn ? 'the reverse fallback' : 'the sink that the coordinator opened'}`,
    url === undefined ? 'no telemetry' : `metrics: ${url}`,
  ].join('\n');
}
