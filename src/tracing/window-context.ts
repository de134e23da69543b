import { type Context, context } from '@opentelemetry/api';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import type { VerifyWindow } from '../scheduler/verify-window.js';
import type { WindowSpans } from './window-spans.js';

/** The spans of each scheduler that is traced, whoever made them: no window has two. */
const traced = new WeakMap<VerifyWindowScheduler, WindowSpans>();

export function isTraced(scheduler: VerifyWindowScheduler): boolean {
  return traced.has(scheduler);
}

export function setWindowSpans(scheduler: VerifyWindowScheduler, spans: WindowSpans): void {
  traced.set(scheduler, spans);
}

/**
 * The context to send along with a window in flight: that of its span, or the active one where it
 * has none, so that a stage learns of a trace that is not sampled, too.
 */
export function windowContext(scheduler: VerifyWindowScheduler, window: VerifyWindow): Context {
  return traced.get(scheduler)?.contextOf(window) ?? context.active();
}
