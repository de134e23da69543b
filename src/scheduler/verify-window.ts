import {
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED,
} from '../../semconv/attributes.js';
import { isCount, type WindowVerdict } from './counts.js';

/** One bounded run of candidate tokens under verification. */
export interface VerifyWindow {
  /** 32-bit id, unique within its scheduler, one more than that of the window before it. */
  readonly id: number;
  /** Absolute position, in tokens, of the window's first input token in the sequence. */
  readonly basePosition: number;
  /** How many tokens the generation had decoded when the window was made. */
  readonly decodeStep: number;
}

/**
 * What the coordinator found when it compared a reply with the window's candidates:
 * either how many of them the target model reproduced, or that the window belonged to a
 * branch that had already diverged.
 */
export type WindowOutcome =
  | {
      /** Candidate tokens that the window carried. */
      readonly proposedTokens: number;
      /** Length of the candidate prefix that the target reproduced; its correction not included. */
      readonly acceptedTokens: number;
      readonly stale?: false;
    }
  | { readonly stale: true };

/**
 * The verdict that an outcome amounts to; `undefined` for one that cannot be (no object, token
 * counts that are no counts, or more accepted than proposed). A window without an outcome, or without a
 * candidate, is `unverified`: there was nothing to accept or to reject.
 */
export function verdictOf(outcome: WindowOutcome | undefined): WindowVerdict | undefined {
  if (outcome === undefined) return LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED;
  if (typeof outcome !== 'object' || outcome === null) return undefined;
  if (outcome.stale) return LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE;
  const { proposedTokens, acceptedTokens } = outcome;
  if (!isCount(proposedTokens) || !isCount(acceptedTokens) || acceptedTokens > proposedTokens) {
    return undefined;
  }
  if (proposedTokens === 0) return LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED;
  if (acceptedTokens === proposedTokens) return LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT;
  if (acceptedTokens === 0) return LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT;
  return LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT;
}
