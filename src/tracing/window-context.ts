import { type Context, context } from '@opentelemetry/api';
import type { VerifyWindow } from '../scheduler/verify-window.js';

/** The context of each window that has a span, for as long as somebody holds the window. */
const contexts = new WeakMap<VerifyWindow, Context>();

export function setWindowContext(window: VerifyWindow, windowContext: Context): void {
  contexts.set(window, windowContext);
}

/**
 * The context to send along with a window: that of its span, or the active one where it has none,
 * so that a stage learns of a trace that is not sampled, too.
 */
export function windowContext(window: VerifyWindow): Context {
  return contexts.get(window) ?? context.active();
}
