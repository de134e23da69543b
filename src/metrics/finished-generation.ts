import type { VerifyWindowStats } from '../scheduler/stats.js';
import { NO_ERRORS } from '../scheduler/tally.js';
import type { Counts } from './signals.js';

/**
 * The counts of a generation of which only the statistics are known. Its windows are all retired,
 * but nobody told by which verdict: they count as `unverified`, and no token is made up for them.
 */
export function countsOf(stats: VerifyWindowStats): Counts {
  return {
    ...stats,
    inFlight: 0,
    isClosed: true,
    completed: { full_accept: 0, partial_accept: 0, reject: 0, stale: 0, unverified: stats.opened },
    dropped: { stale: 0, closed: 0 },
    errors: NO_ERRORS,
    proposedTokens: 0,
    acceptedTokens: 0,
    directReturnPath: undefined,
  };
}
