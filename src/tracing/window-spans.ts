import {
  type Context,
  type HrTime,
  type Span,
  SpanKind,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api';
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
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_WINDOWS_OMITTED,
  ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER,
  LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED,
} from '../../semconv/attributes.js';
import { FIGURES } from '../../semconv/figures.js';
import {
  EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/spans.js';
import type { Counts, DropReason, WindowVerdict } from '../scheduler/counts.js';
import { UNSUBSCRIBE } from '../scheduler/discovery.js';
import type { VerifyWindowErrorCode } from '../scheduler/error.js';
import type { ReportedStats } from '../scheduler/response-timings.js';
import type { VerifyWindowObserver, VerifyWindowScheduler } from '../scheduler/scheduler.js';
import { copyOf, snapshot, type VerifyWindowStats } from '../scheduler/stats.js';
import type { VerifyWindow, WindowOutcome } from '../scheduler/verify-window.js';
import { markFailed } from './outcome.js';
import { type Moment, SpanClock, toHrTime } from './span-clock.js';

/** Called with each window span before it ends; what it throws is reported and goes no further. */
export type WindowSpanHook = (span: Span, window: VerifyWindow) => void;

export interface WindowSpansOptions {
  readonly tracer: Tracer;
  /** The context whose span is the parent of all windows. */
  readonly parent: Context;
  readonly hook: WindowSpanHook | undefined;
  /** How many windows get a span whatever becomes of them. */
  readonly maxWindowSpans: number;
  report(error: unknown): void;
}

/**
 * Ends the spans of schedulers that were garbage-collected before they were closed. There is one
 * for the process, as whoever made the spans may be gone before the scheduler is.
 */
const forgotten = new FinalizationRegistry<OpenSpans>((spans) => spans.abandon());

/** A window in flight. */
interface OpenWindow {
  readonly window: VerifyWindow;
  /** Windows in flight once it was admitted. */
  readonly inFlight: number;
  readonly start: Moment;
  /** None past the limit: whether it gets one is decided when it retires. */
  readonly span: Span | undefined;
}

type TracedWindow = OpenWindow & { readonly span: Span };

/** A window past the limit gets its span if it took this many times the average. */
const SLOW = 2;

/** The spans of one scheduler's windows. It holds no reference to the scheduler. */
export class WindowSpans implements VerifyWindowObserver {
  /** All that has to be ended by somebody else, if the scheduler is forgotten. */
  readonly open: OpenSpans;
  readonly #tracer: Tracer;
  readonly #parent: Context;
  readonly #clock = SpanClock.fromNow();
  readonly #maxWindowSpans: number;
  #spansMade = 0;
  #spansMadeLate = 0;
  /** Of all windows that were completed. */
  readonly #durations = { count: 0, sumMs: 0 };
  /** Whether no stale window has retired since the recovery epoch began. */
  #isAtEdge = false;
  #isReleased = false;

  /** @param counts those of the scheduler. */
  constructor(options: WindowSpansOptions, counts: Counts) {
    const { tracer, parent, hook, maxWindowSpans, report } = options;
    this.#tracer = tracer;
    this.#parent = parent;
    this.#maxWindowSpans = maxWindowSpans;
    this.open = new OpenSpans(trace.getSpan(parent), hook, this.#clock, report, counts);
  }

  watch(scheduler: VerifyWindowScheduler): void {
    scheduler.subscribe(this);
    forgotten.register(scheduler, this.open, this);
  }

  /** Opens no further spans. Those that are open end with their windows. */
  release(scheduler: VerifyWindowScheduler): void {
    this.#isReleased = true;
    this.open.isGenerationOurs = false;
    this.#leaveIfDone(scheduler);
  }

  /** The context of a window in flight: one that does not get a span is not sampled. */
  contextOf(windowId: number): Context | undefined {
    const found = this.open.windows.findLast(({ window }) => window.id === windowId);
    if (found === undefined) return undefined;
    return found.span === undefined
      ? unsampled(this.#parent)
      : trace.setSpan(this.#parent, found.span);
  }

  opened({ inFlight }: VerifyWindowScheduler, window: VerifyWindow): void {
    if (this.#isReleased) return;
    const start = this.#clock.startOfChild();
    const isWithinLimit = this.#spansMade < this.#maxWindowSpans;
    const span = isWithinLimit ? this.#startSpan(window, inFlight, start) : undefined;
    if (isWithinLimit) this.#spansMade++;
    this.open.windows.push({ window, inFlight, start, span });
  }

  completed(
    scheduler: VerifyWindowScheduler,
    window: VerifyWindow,
    verdict: WindowVerdict,
    durationMs: number,
    outcome: WindowOutcome | undefined,
  ): void {
    const isSlow =
      this.#durations.count > 0 &&
      durationMs > SLOW * (this.#durations.sumMs / this.#durations.count);
    this.#durations.count++;
    this.#durations.sumMs += durationMs;
    const isEdge = this.#isEdge(verdict === 'stale');
    const taken = this.#take(window, isSlow || isEdge);
    if (taken !== undefined) {
      const { span } = taken;
      span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER, scheduler.inFlight);
      span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT, verdict);
      if (outcome !== undefined && !outcome.stale) {
        span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS, outcome.proposedTokens);
        span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS, outcome.acceptedTokens);
      }
      this.open.end(taken);
    }
    this.#leaveIfDone(scheduler);
  }

  dropped(scheduler: VerifyWindowScheduler, window: VerifyWindow, reason: DropReason): void {
    const taken = this.#take(window, this.#isEdge(reason === 'stale'));
    if (taken !== undefined) this.open.drop(taken, reason, scheduler.inFlight);
    this.#leaveIfDone(scheduler);
  }

  recoveryEpoch(_scheduler: VerifyWindowScheduler, markedStale: number): void {
    this.#isAtEdge = true;
    this.open.addRecoveryEpoch(markedStale);
  }

  /**
   * The oldest window shows the error: the refused call was to retire it, and whose reply it was
   * that came, if that of any window, is not known.
   */
  refused({ inFlight }: VerifyWindowScheduler, code: VerifyWindowErrorCode): void {
    if (code !== ERROR_TYPE_VALUE_REPLY_OUT_OF_ORDER) return;
    const { windows } = this.open;
    // Where not all windows are known here, the first one need not be the oldest.
    const oldest = windows.length === inFlight ? windows[0]?.span : undefined;
    if (oldest !== undefined) markFailed(oldest, code);
  }

  closed(scheduler: VerifyWindowScheduler): void {
    forgotten.unregister(this);
    this.open.close(scheduler.stats());
  }

  failed(error: unknown): void {
    this.open.report(error);
  }

  #isEdge(isStale: boolean): boolean {
    const isEdge = isStale && this.#isAtEdge;
    if (isEdge) this.#isAtEdge = false;
    return isEdge;
  }

  /**
   * The span of the window that left. There is none for one that was opened before this watched; for
   * one past the limit it is made now, if the window is worth it.
   */
  #take(window: VerifyWindow, isWorthIt: boolean): TracedWindow | undefined {
    const { windows } = this.open;
    const place = windows.findIndex((entry) => entry.window.id === window.id);
    const [found] = place < 0 ? [] : place === 0 ? [windows.shift()] : windows.splice(place, 1);
    if (found === undefined) return undefined;
    if (found.span !== undefined) return found as TracedWindow;
    if (!isWorthIt || this.#spansMadeLate >= this.#maxWindowSpans) {
      this.open.windowsOmitted++;
      return undefined;
    }
    this.#spansMadeLate++;
    return { ...found, span: this.#startSpan(window, found.inFlight, found.start) };
  }

  #startSpan(window: VerifyWindow, inFlight: number, start: Moment): Span {
    const attributes = {
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID]: window.id,
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION]: window.basePosition,
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_DECODE_STEP]: window.decodeStep,
      [ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT]: inFlight,
    };
    return this.#tracer.startSpan(
      SPAN_LLAMA_STAGE_VERIFY_WINDOW,
      { kind: SpanKind.CLIENT, attributes, startTime: toHrTime(start.wallMs) },
      this.#parent,
    );
  }

  #leaveIfDone(scheduler: VerifyWindowScheduler): void {
    if (!this.#isReleased || this.open.windows.length > 0) return;
    forgotten.unregister(this);
    scheduler[UNSUBSCRIBE](this);
  }
}

/** The same trace, with the decision that what comes now is not sampled. */
function unsampled(parent: Context): Context {
  const spanContext = trace.getSpanContext(parent);
  if (spanContext === undefined) return parent;
  return trace.setSpanContext(parent, { ...spanContext, traceFlags: TraceFlags.NONE });
}

/**
 * What is open of one scheduler's spans. It refers neither to the scheduler nor to a context, which
 * may hold the request and with it the scheduler: so it can wait for that to be garbage-collected.
 */
export class OpenSpans {
  /** Oldest first. */
  readonly windows: OpenWindow[] = [];
  windowsOmitted = 0;
  /** Whether events and statistics go onto the generation's span. */
  isGenerationOurs = true;
  /** What else ends when the scheduler is garbage-collected: no closure, which may hold that. */
  generation: { abandon(): void } | undefined;
  #counts: Counts | undefined;
  readonly report: (error: unknown) => void;
  readonly #generation: Span | undefined;
  readonly #hook: WindowSpanHook | undefined;
  readonly #clock: SpanClock;
  #epochs: ThinnedEpochs | undefined;

  constructor(
    generation: Span | undefined,
    hook: WindowSpanHook | undefined,
    clock: SpanClock,
    report: (error: unknown) => void,
    counts: Counts,
  ) {
    this.#generation = generation;
    this.#hook = hook;
    this.#clock = clock;
    this.report = report;
    this.#counts = counts;
  }

  addRecoveryEpoch(markedStale: number): void {
    if (!this.isGenerationOurs) return;
    const epoch = { markedStale, time: this.#clock.time() };
    this.#epochs ??= new ThinnedEpochs();
    if (this.#epochs.isShownAtOnce(epoch)) this.#addEvent(epoch);
  }

  /** When the last one of its windows ended, in milliseconds since 1970. */
  get lastEndMs(): number {
    return this.#clock.lastEndMs;
  }

  drop(traced: TracedWindow, reason: DropReason, inFlightAfter: number): void {
    const { span } = traced;
    span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER, inFlightAfter);
    span.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON, reason);
    this.end(traced);
  }

  end({ span, start, window }: TracedWindow): void {
    try {
      this.#hook?.(span, window);
    } catch (error) {
      this.report(error);
    }
    span.end(toHrTime(this.#clock.endOfChild(start)));
  }

  /** Ends what there still is, as windows that a close dropped, and completes the generation's span. */
  close(stats: VerifyWindowStats): void {
    for (const open of this.windows.splice(0)) {
      if (open.span === undefined) {
        this.windowsOmitted++;
        continue;
      }
      try {
        this.drop(open as TracedWindow, LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUE_CLOSED, 0);
      } catch (error) {
        this.report(error);
      }
    }
    const generation = this.#generation;
    if (generation === undefined || !this.isGenerationOurs) return;
    for (const epoch of this.#epochs?.takeRest() ?? []) this.#addEvent(epoch);
    if (this.windowsOmitted > 0) {
      generation.setAttribute(ATTR_LLAMA_STAGE_VERIFY_WINDOW_WINDOWS_OMITTED, this.windowsOmitted);
    }
    stampGenerationSpan(generation, stats);
  }

  /** As {@link OpenSpans.close}, once, for a scheduler that is gone. It does not throw. */
  abandon(): void {
    const counts = this.#counts;
    this.#counts = undefined;
    if (counts === undefined) return;
    try {
      this.close(snapshot(counts, 0));
    } catch (error) {
      this.report(error);
    }
    this.generation?.abandon();
  }

  #addEvent({ markedStale, time }: Epoch): void {
    this.#generation?.addEvent(
      EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH,
      { [ATTR_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED]: markedStale },
      time,
    );
  }
}

interface Epoch {
  readonly markedStale: number;
  readonly time: HrTime;
}

/** SDKs keep 128 events of a span by default, and drop the earliest. */
const SHOWN_AT_ONCE = 64;
const SHOWN_LATER = 63;

/**
 * Which recovery epochs of a long generation become events: the first 64, of the later ones evenly
 * as many as fit, and the last one.
 */
class ThinnedEpochs {
  #count = 0;
  #stride = 1;
  #later: Epoch[] = [];
  #last: Epoch | undefined;

  /** Takes note of an epoch. @returns whether it is one of the first. */
  isShownAtOnce(epoch: Epoch): boolean {
    if (this.#count < SHOWN_AT_ONCE) {
      this.#count++;
      return true;
    }
    if ((this.#count - SHOWN_AT_ONCE) % this.#stride === 0) {
      this.#later.push(epoch);
      this.#last = undefined;
    } else {
      this.#last = epoch;
    }
    this.#count++;
    if (this.#later.length > SHOWN_LATER) {
      this.#stride *= 2;
      this.#last ??= this.#later.at(-1);
      this.#later = this.#later.filter((_, index) => index % 2 === 0);
    }
    return false;
  }

  /** Those that were kept back, in their order. */
  takeRest(): readonly Epoch[] {
    const rest = this.#last === undefined ? this.#later : [...this.#later, this.#last];
    this.#later = [];
    this.#last = undefined;
    return rest;
  }
}

/**
 * Puts the pipeline and the summary attributes of a generation onto its span. Does nothing on a
 * span that does not record.
 */
export function stampGenerationSpan(span: Span, stats: ReportedStats | undefined): void {
  if (!span.isRecording()) return;
  // One by one, which spares two maps.
  for (const { attribute, statistic } of FIGURES) {
    const value = stats?.[statistic];
    if (value !== undefined) span.setAttribute(attribute, copyOf(value));
  }
}
