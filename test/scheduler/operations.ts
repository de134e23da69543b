import fc from 'fast-check';
import type { StaleExecution, VerifyWindowScheduler, WindowOutcome } from '../../src/index.js';

/** One call of a scheduler, or one movement of its clock. */
export type Operation =
  /** NaN: the clock reads NaN until it moves again. */
  | { readonly name: 'clock'; readonly stepMs: number }
  | { readonly name: 'open'; readonly basePosition: number; readonly decodeStep: number }
  | {
      readonly name: 'completeNext';
      /** How far the reply's id is from that of the oldest window. */
      readonly idOffset: number;
      readonly outcome: WindowOutcome | undefined;
    }
  | { readonly name: 'discardStale' }
  | { readonly name: 'recordStaleDiscarded'; readonly count: number; readonly drainMs: number }
  | { readonly name: 'recordStaleExecution'; readonly execution: StaleExecution }
  | { readonly name: 'markRecoveryEpoch' | 'markStale'; readonly count: number }
  | { readonly name: 'markDirectPredictionReturn'; readonly upstreamOpened: boolean }
  | { readonly name: 'recordHorizonRefill'; readonly count: number }
  | { readonly name: 'close' }
  | { readonly name: 'subscribe' }
  | { readonly name: 'unsubscribe' };

/** Makes one call; the id of a reply counts from `oldestId`. Clock and subscription are the caller's. */
export function perform(
  scheduler: VerifyWindowScheduler,
  operation: Operation,
  oldestId: number,
): unknown {
  switch (operation.name) {
    case 'open':
      return scheduler.open(operation.basePosition, operation.decodeStep);
    case 'completeNext':
      return scheduler.completeNext(oldestId + operation.idOffset, operation.outcome);
    case 'discardStale':
      return scheduler.discardStale();
    case 'recordStaleDiscarded':
      return scheduler.recordStaleDiscarded(operation.count, operation.drainMs);
    case 'recordStaleExecution':
      return scheduler.recordStaleExecution(operation.execution);
    case 'markRecoveryEpoch':
      return scheduler.markRecoveryEpoch(operation.count);
    case 'markStale':
      return scheduler.markStale(operation.count);
    case 'markDirectPredictionReturn':
      return scheduler.markDirectPredictionReturn(operation.upstreamOpened);
    case 'recordHorizonRefill':
      return scheduler.recordHorizonRefill(operation.count);
    case 'close':
      return scheduler.close();
    default:
      return undefined;
  }
}

/** Multiples of 1/4, which add up without rounding in any order. */
const quarters = (max: number) => fc.nat(max * 4).map((quarter) => quarter / 4);

const badCount = fc.constantFrom(-1, 0.5, 2 ** 53, Number.NaN, Number.POSITIVE_INFINITY);
const count = often(fc.oneof(fc.nat(5), fc.constant(Number.MAX_SAFE_INTEGER)), badCount);
const durationMs = often(
  quarters(500),
  fc.constantFrom(-3.5, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
);

const outcome: fc.Arbitrary<WindowOutcome | undefined> = fc.oneof(
  fc.constant(undefined),
  fc.constant({ stale: true } as const),
  fc
    .tuple(fc.nat(8), fc.nat(8))
    .map(([a, b]) => ({ proposedTokens: Math.max(a, b), acceptedTokens: Math.min(a, b) })),
  fc.nat(8).map((tokens) => ({ proposedTokens: tokens, acceptedTokens: tokens })),
  fc.record({ proposedTokens: count, acceptedTokens: count }, { noNullPrototype: true }),
);

const idOffset = often(fc.constant(0), fc.constantFrom(-1, 1, 0.5, Number.NaN));

const execution = fc.record({
  drainMs: durationMs,
  stage0ComputeMs: durationMs,
  forwardWriteMs: durationMs,
  downstreamWaitMs: durationMs,
  verifyElapsedMs: durationMs,
});

const forwards = quarters(2000);
const anywhere = fc.oneof(
  { weight: 6, arbitrary: forwards },
  { weight: 1, arbitrary: quarters(2000).map((ms) => -ms) },
  { weight: 1, arbitrary: fc.constant(Number.NaN) },
);

/** Any sequence of calls. Unless told to, the clock does not only move forwards. */
export function operations(options: { clock?: 'forwards' } = {}): fc.Arbitrary<Operation[]> {
  const stepMs = options.clock === 'forwards' ? forwards : anywhere;
  const operation: fc.Arbitrary<Operation> = fc.oneof(
    { weight: 8, arbitrary: fc.record({ name: fc.constant('clock'), stepMs }) },
    {
      weight: 8,
      arbitrary: fc.record({ name: fc.constant('open'), basePosition: count, decodeStep: count }),
    },
    { weight: 6, arbitrary: fc.record({ name: fc.constant('completeNext'), idOffset, outcome }) },
    fc.record({ name: fc.constant('discardStale') }),
    fc.record({ name: fc.constant('recordStaleDiscarded'), count, drainMs: durationMs }),
    fc.record({ name: fc.constant('recordStaleExecution'), execution }),
    fc.record({ name: fc.constantFrom('markRecoveryEpoch', 'markStale'), count }),
    fc.record({
      name: fc.constant('markDirectPredictionReturn'),
      upstreamOpened: fc.boolean(),
    }),
    fc.record({ name: fc.constant('recordHorizonRefill'), count }),
    fc.record({ name: fc.constant('subscribe') }),
    fc.record({ name: fc.constant('unsubscribe') }),
  );
  // Half of the sequences never come to the close; the others go on for a little after it.
  const life = fc.array(operation, { maxLength: 60 });
  const rest = fc.array(operation, { maxLength: 8 });
  const close: Operation = { name: 'close' };
  return fc.oneof(
    life,
    fc.tuple(life, rest).map(([before, after]) => [...before, close, ...after]),
  );
}

function often<A, B>(usual: fc.Arbitrary<A>, unusual: fc.Arbitrary<B>): fc.Arbitrary<A | B> {
  return fc.oneof({ weight: 6, arbitrary: usual }, { weight: 1, arbitrary: unusual });
}
