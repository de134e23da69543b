import { type Context, type Span, SpanKind, type Tracer, trace } from '@opentelemetry/api';
import {
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_DECODE_STEP,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
  ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER,
  LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED,
} from '../../semconv/attributes.js';
import {
  EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import type { VerifyWindowErrorCode } from '../scheduler/error.js';
import type { VerifyWindowObserver } from '../scheduler/observer.js';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import type {
  DropReason,
  VerifyWindow,
  WindowOutcome,
  WindowVerdict,
} from '../scheduler/verify-window.js';
import { markFailed } from './failure.js';
import { SpanClock } from './span-clock.js';
import { stampGenerationSpan } from './stamp-generation-span.js';

/** Called with each window span before it ends; what it throws is reported and goes no further. */
export type WindowSpanHook = (span: Span, window: VerifyWindow) => void;

export interface WindowSpansOptions {
  readonly tracer: Tracer;
  /** The context whose span is the parent of all windows. */
  readonly parent: Context;
  readonly hook: WindowSpanHook | undefined;
  report(error: unknown): void;
}

/**
 * Ends the spans of schedulers that were garbage-collected before they were closed. There is one
 * for the process, as whoever made the spans may be gone before the scheduler is.
 */
const forgotten = new FinalizationRegistry<WindowSpans>((spans) => spans.endAll());

/** The spans of one scheduler's windows in flight. It holds no reference to the scheduler. */
export class WindowSpans implements VerifyWindowObserver {
  readonly #tracer: Tracer;
  readonly #parent: Context;
  readonly #generation: Span | undefined;
  readonly #clock = new SpanClock();
  readonly #hook: WindowSpanHook | undefined;
  readonly #report: (error: unknown) => void;
  /** Oldest first. */
  readonly #inFlight: { readonly window: VerifyWindow; readonly span: Span }[] = [];

  constructor({ tracer, parent, hook, report }: WindowSpansOptions) {
    this.#tracer = tracer;
    this.#parent = parent;
    this.#generation = trace.getSpan(parent);
    this.#hook = hook;
    this.#report = report;
  }

  watch(scheduler: VerifyWindowScheduler): void {
    scheduler.subscribe(this);
    forgotten.register(scheduler, this, this);
  }

  /** The context of a window in flight. */
  contextOf(window: VerifyWindow): Context | undefined {
    const found = this.#inFlight.findLast((entry) => entry.window === window);
    return found && trace.setSpan(this.#parent, found.span);
  }

  opened({ inFlight }: VerifyWindowScheduler, window: VerifyWindow): void {
    const attributes = {
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID]: window.id,
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION]: window.basePosition,
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_DECODE_STEP]: window.decodeStep,
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT]: inFlight,
    };
    const span = this.#tracer.startSpan(
      SPAN_LLAMA_STAGE_VERIFY_WINDOW,
      { kind: SpanKind.CLIENT, attributes, startTime: this.#clock.now() },
      this.#parent,
    );
    this.#inFlight.push({ window, span });
  }

  completed(
    { inFlight }: VerifyWindowScheduler,
    window: VerifyWindow,
    verdict: WindowVerdict,
    _durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void {
    const span = this.#take(window);
    if (span === undefined) return;
    span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER, inFlight);
    span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT, verdict);
    if (outcome !== undefined && !outcome.stale) {
      span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS, outcome.proposedTokens);
      span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS, outcome.acceptedTokens);
    }
    this.#end(window, span);
  }

  dropped({ inFlight }: VerifyWindowScheduler, window: VerifyWindow, reason: DropReason): void {
    const span = this.#take(window);
    if (span !== undefined) this.#drop(window, span, reason, inFlight);
  }

  recoveryEpoch(_scheduler: VerifyWindowScheduler, markedStale: number): void {
    this.#generation?.addEvent(
      EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
      { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED]: markedStale },
      this.#clock.now(),
    );
  }

  /**
   * The oldest window shows the error: the refused call was to retire it, and whose reply it was
   * that came, if that of any window, is not known.
   */
  refused({ inFlight }: VerifyWindowScheduler, code: VerifyWindowErrorCode): void {
    if (code !== ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER) return;
    // Where not all windows have spans, the first span need not be that of the oldest window.
    const oldest = this.#inFlight.length === inFlight ? this.#inFlight[0] : undefined;
    if (oldest !== undefined) markFailed(oldest.span, code);
  }

  closed(scheduler: VerifyWindowScheduler): void {
    forgotten.unregister(this);
    this.endAll();
    if (this.#generation !== undefined) stampGenerationSpan(this.#generation, scheduler.stats());
  }

  failed(error: unknown): void {
    this.#report(error);
  }

  /** Ends what there still is, as windows that a close dropped. It does not throw. */
  endAll(): void {
    for (const { window, span } of this.#inFlight.splice(0)) {
      try {
        this.#drop(window, span, LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED, 0);
      } catch (error) {
        this.#report(error);
      }
    }
  }

  /**
   * The span of the window that left: none for one that was opened before this watched. It is the
   * oldest one, unless another observer retired a window while this was still to hear of it.
   */
  #take(window: VerifyWindow): Span | undefined {
    if (this.#inFlight[0]?.window === window) return this.#inFlight.shift()?.span;
    const place = this.#inFlight.findIndex((entry) => entry.window === window);
    return place < 0 ? undefined : this.#inFlight.splice(place, 1)[0]?.span;
  }

  #drop(window: VerifyWindow, span: Span, reason: DropReason, inFlightAfter: number): void {
    span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER, inFlightAfter);
    span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON, reason);
    this.#end(window, span);
  }

  #end(window: VerifyWindow, span: Span): void {
    try {
      this.#hook?.(span, window);
    } catch (error) {
      this.#report(error);
    }
    span.end(this.#clock.now());
  }
}
