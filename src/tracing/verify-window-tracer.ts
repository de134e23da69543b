import { type Context, context, type Tracer, type TracerProvider, trace } from '@opentelemetry/api';
import { reportOnce } from '../diag.js';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import { SCOPE_NAME, SCOPE_VERSION } from '../scope.js';
import { type WindowSpanHook, WindowSpans } from './window-spans.js';

export interface VerifyWindowTracerOptions {
  /** Where spans come from. Default: the global provider, also one that is registered later. */
  readonly tracerProvider?: TracerProvider;
  /**
   * Whether windows are traced only below a span. Without one, each window would be a trace of its
   * own. Default: true.
   */
  readonly requireParentSpan?: boolean;
  /** Called with each window span before it ends, to add to it. */
  readonly onWindowSpan?: WindowSpanHook;
}

/** The schedulers that have window spans, whoever makes them: no window has two. */
const traced = new WeakSet<VerifyWindowScheduler>();

/**
 * Makes a `llama_stage.verify_window` span of each window of the schedulers that it observes.
 *
 * The parent is the span that is active when `observe` is called, or the one of a context that is
 * given; it also gets an event for each recovery epoch, and the pipeline and summary attributes
 * when the scheduler closes. Where it is not recorded, nothing is created, and the scheduler is
 * not even watched.
 */
export class VerifyWindowTracer {
  readonly #requireParentSpan: boolean;
  readonly #hook: WindowSpanHook | undefined;
  readonly #report = reportOnce('tracing verify windows failed');
  readonly #forgotten = new FinalizationRegistry<WindowSpans>((spans) => spans.abandon());
  #tracer: Tracer;

  constructor(options: VerifyWindowTracerOptions = {}) {
    this.#requireParentSpan = options.requireParentSpan ?? true;
    this.#hook = options.onWindowSpan;
    this.#tracer = tracerOf(options.tracerProvider ?? trace);
  }

  /** Takes spans from this provider from now on; windows in flight keep theirs. */
  setTracerProvider(provider: TracerProvider): void {
    this.#tracer = tracerOf(provider);
  }

  /** Traces the windows that this scheduler opens from now on, unless they are traced already. */
  observe(scheduler: VerifyWindowScheduler, parent: Context = context.active()): void {
    if (traced.has(scheduler)) return;
    const parentSpan = trace.getSpan(parent);
    if (parentSpan === undefined ? this.#requireParentSpan : !parentSpan.isRecording()) return;
    traced.add(scheduler);
    const spans = new WindowSpans({
      tracer: this.#tracer,
      parent,
      hook: this.#hook,
      report: this.#report,
    });
    scheduler.subscribe(spans);
    this.#forgotten.register(scheduler, spans);
  }
}

function tracerOf(source: Pick<TracerProvider, 'getTracer'>): Tracer {
  return source.getTracer(SCOPE_NAME, SCOPE_VERSION);
}
