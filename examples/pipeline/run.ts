import { type VerifyWindowMetrics, VerifyWindowScheduler } from 'llama-stage-otel';
import type { Arguments } from './arguments.js';
import type { Chain } from './chain.js';
import { Generation, type Output } from './generation.js';
import { RUN_ATTRIBUTE, type RunName } from './measurements.js';
import { readText } from './text.js';

/** Length of a prompt, in tokens. */
const PROMPT_TOKENS = 900;

export interface RunOptions {
  readonly name: RunName;
  readonly depth: number;
  readonly args: Arguments;
  readonly chain: Chain;
  readonly metrics: VerifyWindowMetrics;
  /** Generations on a chain are told apart by their ids; this run's begin here. */
  readonly firstId: number;
  onFinished(finished: number): void;
}

/** Runs all generations, several at a time. */
export async function run(options: RunOptions): Promise<{ outputs: Output[]; elapsedMs: number }> {
  const { args } = options;
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
  return { outputs, elapsedMs: performance.now() - startedAtMs };
}

async function generate(options: RunOptions, index: number, prompt: number[]): Promise<Output> {
  const { args, chain, depth, firstId, metrics, name } = options;
  const scheduler = new VerifyWindowScheduler({ depth });
  metrics.observe(scheduler, { [RUN_ATTRIBUTE]: name });
  try {
    const { tokens, width } = args;
    return await new Generation(chain, scheduler, {
      id: firstId + index,
      prompt,
      tokens,
      width,
    }).run();
  } finally {
    scheduler.close();
  }
}

/** Prompts from places spread evenly over the text. */
function promptsOf(text: readonly number[], count: number): number[][] {
  const lastStart = text.length - PROMPT_TOKENS;
  return Array.from({ length: count }, (_, index) => {
    const start = Math.floor((index * lastStart) / count);
    return text.slice(start, start + PROMPT_TOKENS);
  });
}
