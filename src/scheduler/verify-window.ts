import type {
  LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED,
  LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_STALE,
} from '../../semconv/attributes.js';
import {
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE,
  LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED,
} from '../../semconv/attributes.js';
import { isCount } from './quantities.js';

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

/** Verdict on a retired window: the values of `llama_stage.verify_window.verdict`. */
export type WindowVerdict =
  | typeof LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT
  | typeof LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_PARTIAL_ACCEPT
  | typeof LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_REJECT
  | typeof LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_STALE
  | typeof LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_UNVERIFIED;

/** Why a window left without a reply: the values of `llama_stage.verify_window.drop_reason`. */
export type DropReason =
  | typeof LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_STALE
  | typeof LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED;

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
