import fc from 'fast-check';
import { GenerationTelemetry, VerifyWindowError } from 'llama-stage-otel';
import { describe, expect, test } from 'vitest';
import { Generation } from '../../examples/pipeline/generation.js';
import { LastStage } from '../../examples/pipeline/last-stage.js';
import type { Predictions, Window } from '../../examples/pipeline/messages.js';
import { Target } from '../../examples/pipeline/target.js';
import { readText } from '../../examples/pipeline/text.js';
import type { Verification, Verifier } from '../../examples/pipeline/verifier.js';

const TEXT = readText();
const TARGET = new Target(TEXT);

/** A chain without processes or time: each reply comes some turns of the event loop later. */
class InstantChain implements Verifier {
  readonly upstreamOpened = true;
  readonly windows: Window[] = [];
  readonly #lastStage = new LastStage(TARGET);
  readonly #change: (reply: Predictions) => Predictions;

  constructor(change = (reply: Predictions) => reply) {
    this.#change = change;
  }

  begin(generation: number, prompt: readonly number[]): void {
    this.#lastStage.handle({ type: 'begin', generation, prompt });
  }

  end(generation: number): void {
    this.#lastStage.handle({ type: 'end', generation });
  }

  async verify(window: Window): Promise<Verification> {
    this.windows.push(window);
    const reply = this.#change(this.#lastStage.handle(window) as Predictions);
    await Promise.resolve();
    return {
      windowId: reply.windowId,
      predictions: reply.predictions,
      stage0ComputeMs: 1,
      forwardWriteMs: 2,
      downstreamWaitMs: 3,
      elapsedMs: 6,
    };
  }
}

interface Case {
  readonly depth: number;
  readonly width: number;
  readonly tokens: number;
  readonly start: number;
  readonly promptTokens: number;
}

const cases = fc.record<Case>({
  depth: fc.integer({ min: 1, max: 9 }),
  width: fc.integer({ min: 1, max: 9 }),
  tokens: fc.integer({ min: 1, max: 120 }),
  start: fc.nat(TEXT.length - 1000),
  promptTokens: fc.integer({ min: 1, max: 900 }),
});

function promptOf({ start, promptTokens }: Case): number[] {
  return TEXT.slice(start, start + promptTokens);
}

/** What the target says by itself, one token at a time: no window, no guess. */
function decodedPlainly(prompt: readonly number[], tokens: number): number[] {
  const sequence = [...prompt];
  for (let i = 0; i < tokens; i++) sequence.push(TARGET.predict(sequence));
  return sequence.slice(prompt.length);
}

async function generate(chain: InstantChain, { depth, width, tokens, ...rest }: Case) {
  const prompt = promptOf({ depth, width, tokens, ...rest });
  return new GenerationTelemetry().run({ depth }, async (observed) => {
    const generation = new Generation(chain, observed, { id: 1, prompt, tokens, width });
    return { output: await generation.run(), stats: observed.scheduler.stats() };
  });
}

describe('a generation', () => {
  test('gives what the target would give by itself, at any depth and width', async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (given) => {
        const { output } = await generate(new InstantChain(), given);
        expect(output.tokens).toEqual(decodedPlainly(promptOf(given), given.tokens));
        expect(output.interTokenMs).toHaveLength(given.tokens - 1);
      }),
    );
  });

  test('measures each stale window, and leaves none behind', async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (given) => {
        const { stats } = await generate(new InstantChain(), given);
        expect(stats.staleDiscarded).toBe(stats.staleMarked);
        expect(stats.staleStage0ComputeMs).toBe(stats.staleDiscarded);
        expect(stats.staleForwardWriteMs).toBe(2 * stats.staleDiscarded);
        expect(stats.staleDownstreamWaitMs).toBe(3 * stats.staleDiscarded);
        expect(stats.staleVerifyElapsedMs).toBe(6 * stats.staleDiscarded);
        expect(stats.directReturnUpstreamOpened).toBe(true);
      }),
    );
  });

  test('sends chunks that do not overlap, until it has to go back', async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (given) => {
        const chain = new InstantChain();
        const { stats } = await generate(chain, given);
        let restarts = 0;
        let end = given.promptTokens - 1;
        for (const { basePosition, tokens } of chain.windows) {
          // The boundary token that a window begins with counts beside its candidates.
          expect(tokens.length).toBeLessThanOrEqual(given.width + 1);
          if (basePosition !== end) restarts++;
          end = basePosition + tokens.length;
        }
        expect(restarts).toBeLessThanOrEqual(stats.recoveryEpochs);
      }),
    );
  });

  test('is stopped by a reply that names another window', async () => {
    const chain = new InstantChain((reply) => ({ ...reply, windowId: reply.windowId + 1 }));
    const given = { depth: 4, width: 4, tokens: 20, start: 0, promptTokens: 300 };
    await expect(generate(chain, given)).rejects.toThrow(VerifyWindowError);
  });
});

test('the last stage refuses a window that does not join its sequence', () => {
  const lastStage = new LastStage(TARGET);
  lastStage.handle({ type: 'begin', generation: 1, prompt: [1, 2] });
  const window = { type: 'window', generation: 1, windowId: 1, tokens: [3], trace: {} } as const;
  expect(lastStage.handle({ ...window, basePosition: 2 })?.predictions).toHaveLength(1);
  expect(() => lastStage.handle({ ...window, basePosition: 4 })).toThrow('does not join');
  expect(() => lastStage.handle({ ...window, generation: 2, basePosition: 0 })).toThrow();
});
