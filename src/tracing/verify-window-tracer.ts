import {
  type Context,
  context,
  type Span,
  TraceFlags,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import { Guard } from '../guard.js';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import { TracerSource } from './tracer-source.js';
import { isTraced, setWindowSpans } from './window-context.js';
import { type WindowSpanHook, WindowSpans } from './window-spans.js';

export interface VerifyWindowTracerOptions {
  /** Where spans come from. Default: the global provider, also one that is registered later. */
  readonly tracerProvider?: TracerProvider;
  /**
   * Whether windows are traced only below a span. Without one, each window would be a trace of its
   * own. Default: true.
   */
  readonly requireParentSpan?: boolean;
  /**
   * Called with each window span before it ends, to add to it. What it throws is reported once,
   * through the API's `diag`.
   */
  readonly onWindowSpan?: WindowSpanHook;
}

/**
 * Makes a `llama_stage.verify_window` span of each window of the schedulers that it observes.
 *
 * The parent is the span that is active when `observe` is called, or the one of a context that is
 * given; it also gets an event for each recovery epoch, and the pipeline and summary attributes
 * when the scheduler closes. Where it is not recorded, nothing is created, and the scheduler is
 * not even watched. A parent that came from another process is recorded where it is sampled.
 */
export class VerifyWindowTracer {
  readonly #source: TracerSource;
  readonly #requireParentSpan: boolean;
  readonly #hook: WindowSpanHook | undefined;
  readonly #guard = new Guard('tracing verify windows failed');

  constructor(options: VerifyWindowTracerOptions = {}) {
    this.#requireParentSpan = options.requireParentSpan ?? true;
    this.#hook = options.onWindowSpan;
    this.#source = new TracerSource(options.tracerProvider);
  }

  /** Takes spans from this provider from now on; schedulers that are observed keep theirs. */
  setTracerProvider(provider: TracerProvider): void {
    this.#source.setProvider(provider);
  }

  /** Traces the windows that this scheduler opens from now on, unless they are traced already. */
  observe(scheduler: VerifyWindowScheduler, parent: Context = context.active()): void {
    this.#guard.run(() => {
      if (!scheduler.isClosed && !isTraced(scheduler) && this.#isRecorded(parent)) {
        this.#watch(scheduler, parent);
      }
    });
  }

  #isRecorded(parent: Context): boolean {
    const span = trace.getSpan(parent);
    if (span === undefined) return !this.#requireParentSpan;
    return span.isRecording() || isSampledRemotely(span);
  }

  #watch(scheduler: VerifyWindowScheduler, parent: Context): void {
    const spans = new WindowSpans({
      tracer: this.#source.tracer,
      parent,
      hook: this.#hook,
      report: this.#guard.report,
    });
    setWindowSpans(scheduler, spans);
    spans.watch(scheduler);
  }
}

function isSampledRemotely(span: Span): boolean {
  const { isRemote, traceFlags } = span.spanContext();
  return isRemote === true && (traceFlags & TraceFlags.SAMPLED) !== 0;
}
