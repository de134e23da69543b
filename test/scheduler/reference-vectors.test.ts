import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  parseResponseTimings,
  pipelineAttributes,
  responseTimings,
  VerifyWindowError,
  VerifyWindowScheduler,
  type VerifyWindowStats,
} from '../../src/index.js';
import { closeTo } from './close-to.js';

type Argument = number | boolean | 'NaN';
type Operation = readonly [name: string, ...args: Argument[]];

interface Case {
  readonly depth: number;
  readonly firstWindowId?: number;
  readonly ops: readonly Operation[];
  /** What the reference answered to each operation. */
  readonly results: readonly unknown[];
}

const cases = readFileSync(join(import.meta.dirname, '../vectors/scheduler.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Case);

/** Runs one case: the answer to each operation, as the reference wrote its own. */
function replay({ depth, firstWindowId, ops }: Case) {
  let ns = 0;
  const taken: VerifyWindowStats[] = [];
  const scheduler = new VerifyWindowScheduler({
    depth,
    ...(firstWindowId !== undefined && { firstWindowId }),
    clock: () => ns / 1e6,
  });

  function answer([name, ...args]: Operation): unknown {
    const [a, b, c, d, e] = args.map(Number) as [number, number, number, number, number];
    switch (name) {
      case 'advance':
        ns += a;
        return null;
      case 'open':
        return okOrError(() => scheduler.open(a, b));
      case 'completeNext':
        return okOrError(() => scheduler.completeNext(a));
      case 'discardStale':
        return scheduler.discardStale();
      case 'recordStaleDiscarded':
        return scheduler.recordStaleDiscarded(a, b) ?? null;
      case 'recordStaleExecution': {
        const [drainMs, stage0ComputeMs, forwardWriteMs] = [a, b, c];
        const rest = { forwardWriteMs, downstreamWaitMs: d, verifyElapsedMs: e };
        return scheduler.recordStaleExecution({ drainMs, stage0ComputeMs, ...rest }) ?? null;
      }
      case 'markRecoveryEpoch':
        return scheduler.markRecoveryEpoch(a) ?? null;
      case 'markStale':
        return scheduler.markStale(a) ?? null;
      case 'markDirectPredictionReturn':
        return scheduler.markDirectPredictionReturn(args[0] === true) ?? null;
      case 'recordHorizonRefill':
        return scheduler.recordHorizonRefill(a) ?? null;
      case 'supportsPipelining':
        return scheduler.supportsPipelining(a);
      case 'state': {
        const { hasCapacity, inFlight, staleDiscarded, depth } = scheduler;
        return { hasCapacity, inFlight, staleDiscarded, depth };
      }
      case 'stats': {
        const stats = scheduler.stats();
        taken.push(stats);
        return { timings: responseTimings(stats), attributes: pipelineAttributes(stats) };
      }
      default:
        throw new Error(`unknown operation ${name}`);
    }
  }

  return { answers: ops.map(answer), taken };
}

function okOrError(call: () => unknown): unknown {
  try {
    return { ok: call() };
  } catch (error) {
    if (error instanceof VerifyWindowError) return { error: error.message };
    throw error;
  }
}

describe('the reference scheduler', () => {
  it('left 240 cases, with every operation and every refusal that it knows', () => {
    expect(cases).toHaveLength(240);
    expect(new Set(cases.flatMap(({ ops }) => ops.map(([name]) => name))).size).toBe(13);
    const refusals = cases
      .flatMap(({ results }) => results as ({ error?: string } | null)[])
      .flatMap((result) => result?.error?.replaceAll(/-?\d+/g, '#') ?? []);
    expect([...new Set(refusals)].sort()).toEqual([
      'verify window id overflow',
      'verify window pipeline depth exceeded',
      'verify window reply arrived with no in-flight window',
      'verify window reply out of order: got #, expected #',
    ]);
  });

  it.each(cases.map((trace, index) => [index, trace] as const))(
    'answers as ours does in case %i',
    (_, trace) => {
      const { answers, taken } = replay(trace);
      // Strictly: the key sets are the same too, and none is there with nothing in it.
      expect(closeTo(answers, trace.results)).toStrictEqual(trace.results);
      for (const stats of taken) {
        expect(parseResponseTimings(responseTimings(stats))).toStrictEqual(stats);
      }
    },
  );
});
