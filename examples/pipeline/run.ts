import type { PipelineTelemetry } from 'llama-stage-otel';
import type { Arguments } from './arguments.js';
import type { Chain } from './chain.js';
import { Generation, type Output } from './generation.js';
import { RUN_ATTRIBUTE, type RunName } from './measurements.js';
import { readText } from './text.js';
import type { Timeline } from './timeline.js';

/** Length of a prompt, in tokens. */
const PROMPT_TOKENS = 900;

/** What requests ask for: there is one model. */
const MODEL = 'back-off-n-gram';

export interface RunOptions {
  readonly name: RunName;
  readonly depth: number;
  readonly args: Arguments;
  readonly chain: Chain;
  readonly telemetry: PipelineTelemetry;
  /** Generations on a chain are told apart by their ids; this run's begin here. */
  readonly firstId: number;
  onFinished(finished: number): void;
}

export interface RunResult {
  readonly outputs: readonly Output[];
  readonly elapsedMs: number;
  readonly timeline: Timeline;
}

/** Runs all generations, several at a time. */
export async function run(options: RunOptions): Promise<RunResult> {
  const { args, chain } = options;
  const prompts = promptsOf(readText(), args.generations);
  const outputs: Output[] = [];
  let started = 0;
  let finished = 0;
  const startedAtMs = performance.now();
  const worker = async () => {
    while (started < prompts.length) {
      const index = started++;
      outputs[index] = await generate(options, index, prompts[index] as number[]);
      options.onFinished(++finished);
    }
  };
  await Promise.all(Array.from({ length: args.concurrency }, worker));
  const elapsedMs = performance.now() - startedAtMs;
  return { outputs, elapsedMs, timeline: chain.takeTimeline() };
}

function generate(options: RunOptions, index: number, prompt: number[]): Promise<Output> {
  const { args, chain, depth, firstId, name, telemetry } = options;
  const { tokens, width } = args;
  const id = firstId + index;
  const metricAttributes = { [RUN_ATTRIBUTE]: name };
  return telemetry
    .generation({ depth, requestModel: MODEL, metricAttributes })
    .run((observed) => new Generation(chain, observed, { id, prompt, tokens, width }).run());
}

/** Prompts from places spread evenly over the text. */
function promptsOf(text: readonly number[], count: number): number[][] {
  const lastStart = text.length - PROMPT_TOKENS;
  return Array.from({ length: count }, (_, index) => {
    const start = Math.floor((index * lastStart) / count);
    return text.slice(start, start + PROMPT_TOKENS);
  });
}
