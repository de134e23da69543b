import {
  type Context,
  context,
  type Span,
  TraceFlags,
  type Tracer,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import { attach, type Tracing, tracingOf } from '../attach.js';
import { Guard, SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION } from '../guard.js';
import { refuseArgument } from '../scheduler/error.js';
import type { VerifyWindowScheduler } from '../scheduler/scheduler.js';
import type { VerifyWindow } from '../scheduler/verify-window.js';
import {
  type OpenSpans,
  type WindowSpanHook,
  WindowSpans,
  type WindowSpansOptions,
} from './window-spans.js';

/** At four stages, 13 spans for each window: what a trace view still opens. */
const DEFAULT_MAX_WINDOW_SPANS = 1000;

export interface VerifyWindowTracerOptions {
  /** Where spans come from. Default: the global provider, also one that is registered later. */
  readonly tracerProvider?: TracerProvider;
  /**
   * Whether windows are traced only below a span. Without one, each window would be a trace of its
   * own. Default: true.
   */
  readonly requireParentSpan?: boolean;
  /**
   * How many windows of a generation get a span whatever becomes of them, and, with them, spans in
   * every stage. Past it a window gets one only if it took twice the average, or if it is the first
   * stale one of a recovery epoch, and none in the stages; these are limited to the same number. How
   * many got none is `llama_stage.verify_window.windows_omitted` of the generation. An integer of at
   * least 0. Default: 1000.
   */
  readonly maxWindowSpans?: number;
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
 * given; it also gets events for recovery epochs, and the pipeline and summary attributes when the
 * scheduler closes. Where it is not recorded, nothing is created, and the scheduler is not even
 * watched. A parent that came from another process is recorded where it is sampled.
 *
 * A scheduler is traced once, by the first tracer that observes it.
 */
export class VerifyWindowTracer {
  readonly #source: TracerSource;
  readonly #requireParentSpan: boolean;
  readonly #maxWindowSpans: number;
  readonly #hook: WindowSpanHook | undefined;
  readonly #guard = new Guard('tracing verify windows failed');

  /** @throws {VerifyWindowError} `invalid_argument` for a `maxWindowSpans` out of its range. */
  constructor(options?: VerifyWindowTracerOptions) {
    const { maxWindowSpans = DEFAULT_MAX_WINDOW_SPANS, requireParentSpan = true } = options ?? {};
    if (!(Number.isInteger(maxWindowSpans) && maxWindowSpans >= 0)) {
      refuseArgument('maxWindowSpans', 'an integer of at least 0', maxWindowSpans);
    }
    this.#requireParentSpan = requireParentSpan;
    this.#maxWindowSpans = maxWindowSpans;
    this.#hook = options?.onWindowSpan;
    this.#source = new TracerSource(options?.tracerProvider);
  }

  /** Takes spans from this provider from now on; schedulers that are observed keep theirs. */
  setTracerProvider(provider: TracerProvider): void {
    this.#source.setProvider(provider);
  }

  /**
   * Traces the windows that this scheduler opens from now on. One that is traced already stays as it
   * is, but for one that an instrumentation has found.
   *
   * @returns what is open of its spans; nothing where it is not traced, or by somebody else.
   */
  observe(
    scheduler: VerifyWindowScheduler,
    parent: Context = context.active(),
  ): OpenSpans | undefined {
    return this.#guard.run(() => this.#attach(scheduler, parent, true));
  }

  /** Traces a scheduler that was found, and not given: it goes to whoever observes it. */
  discover(scheduler: VerifyWindowScheduler, parent: Context): void {
    this.#guard.run(() => this.#attach(scheduler, parent, false));
  }

  #attach(
    scheduler: VerifyWindowScheduler,
    parent: Context,
    isExplicit: boolean,
  ): OpenSpans | undefined {
    const isRecorded = !scheduler.isClosed && this.#isRecorded(parent);
    const { provider, tracer } = this.#source;
    const options: TracingOptions = {
      provider,
      tracer,
      parent,
      hook: this.#hook,
      maxWindowSpans: this.#maxWindowSpans,
      report: this.#guard.report,
    };
    let open: OpenSpans | undefined;
    attach(
      'tracing',
      scheduler,
      ({ counts }) =>
        new WindowTracing(
          options,
          isRecorded ? new WindowSpans(options, counts) : undefined,
          isExplicit,
        ),
      ({ spans }) => {
        spans?.watch(scheduler);
        open = spans?.open;
      },
    );
    return open;
  }

  #isRecorded(parent: Context): boolean {
    const span = trace.getSpan(parent);
    if (span === undefined) return !this.#requireParentSpan;
    return span.isRecording() || isSampledRemotely(span);
  }
}

interface TracingOptions extends WindowSpansOptions {
  readonly provider: TracerProvider;
}

/** That the windows of a scheduler belong below a span, recorded or not. */
class WindowTracing implements Tracing {
  readonly isExplicit: boolean;
  readonly spans: WindowSpans | undefined;
  readonly #options: TracingOptions;

  constructor(options: TracingOptions, spans: WindowSpans | undefined, isExplicit: boolean) {
    this.#options = options;
    this.spans = spans;
    this.isExplicit = isExplicit;
  }

  get options(): readonly unknown[] {
    const { hook, maxWindowSpans, parent, provider } = this.#options;
    return [provider, hook, maxWindowSpans, trace.getSpan(parent)];
  }

  /** Without a span above them the windows belong nowhere yet. */
  get isActive(): boolean {
    return this.spans !== undefined || trace.getSpan(this.#options.parent) !== undefined;
  }

  contextOf(windowId: number): Context {
    return this.spans?.contextOf(windowId) ?? this.#options.parent;
  }

  release(scheduler: VerifyWindowScheduler): undefined {
    this.spans?.release(scheduler);
  }
}

/**
 * The context to send along with a window in flight: that of its span; where it has none, that of
 * its generation, so that a stage learns of a trace that is not sampled, too. For a scheduler that
 * nobody traces it is the active context.
 *
 * @param window the window, or whatever has its id.
 */
export function windowContext(
  scheduler: VerifyWindowScheduler,
  window: Pick<VerifyWindow, 'id'>,
): Context {
  return tracingOf(scheduler)?.contextOf(window?.id) ?? context.active();
}

function isSampledRemotely(span: Span): boolean {
  const { isRemote, traceFlags } = span.spanContext();
  return isRemote === true && (traceFlags & TraceFlags.SAMPLED) !== 0;
}

/**
 * Where the tracer comes from: a given provider, or the global one. It asks for the global one
 * again and again: a process may hold two copies of the API, one imported and one required, and a
 * tracer that one of them gave before an SDK was registered with the other never comes to life.
 */
export class TracerSource {
  #given: TracerProvider | undefined;
  #provider: TracerProvider | undefined;
  #tracer: Tracer | undefined;

  constructor(provider?: TracerProvider) {
    this.#given = provider;
  }

  /** Takes the tracer from this provider from now on. */
  setProvider(provider: TracerProvider): void {
    this.#given = provider;
  }

  get provider(): TracerProvider {
    return this.#given ?? trace.getTracerProvider();
  }

  get tracer(): Tracer {
    const { provider } = this;
    if (this.#tracer === undefined || provider !== this.#provider) {
      this.#provider = provider;
      this.#tracer = provider.getTracer(SCOPE_NAME, SCOPE_VERSION, { schemaUrl: SCHEMA_URL });
    }
    return this.#tracer;
  }
}
