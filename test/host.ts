import { type Context, context, ROOT_CONTEXT, trace } from '@opentelemetry/api';
import {
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../semconv/index.js';
import { VerifyWindowMetrics, VerifyWindowScheduler, VerifyWindowTracer } from '../src/index.js';
import {
  VerifyWindowInstrumentation,
  type VerifyWindowInstrumentationOptions,
} from '../src/instrumentation.js';
import { ManualReader, providerWith } from './metrics/collected.js';
import { Tracing } from './tracing/sdk.js';

/** What a test made, for {@link cleanUp}. */
export const instrumentations: VerifyWindowInstrumentation[] = [];
export const schedulers: VerifyWindowScheduler[] = [];

/** Takes away what the instrumentations of the next test would find. */
export function cleanUp(): void {
  for (const instrumentation of instrumentations.splice(0)) instrumentation.disable();
  for (const scheduler of schedulers.splice(0)) scheduler.close();
}

/** A process with the real SDK, and what it exports. */
export class Host {
  readonly tracing: Tracing;
  readonly tracerProvider: Tracing['provider'];
  readonly reader = new ManualReader();
  readonly delta = ManualReader.delta();
  readonly meterProvider = providerWith(this.reader, this.delta);

  constructor(tracing = new Tracing()) {
    this.tracing = tracing;
    this.tracerProvider = tracing.provider;
  }

  /** An instrumentation that is not enabled. */
  instrumentation(options: VerifyWindowInstrumentationOptions = {}) {
    const instrumentation = new VerifyWindowInstrumentation({ ...options, enabled: false });
    instrumentation.setMeterProvider(this.meterProvider);
    instrumentation.setTracerProvider(this.tracerProvider);
    instrumentations.push(instrumentation);
    return instrumentation;
  }

  bridge() {
    return new VerifyWindowMetrics({ meterProvider: this.meterProvider });
  }

  tracer() {
    return new VerifyWindowTracer({ tracerProvider: this.tracerProvider });
  }

  /** The context of a new generation of the host's own. */
  generation(): Context {
    return trace.setSpan(ROOT_CONTEXT, this.tracing.tracer.startSpan('generation'));
  }

  /** A scheduler that is made inside of that. */
  scheduler(
    inside = this.generation(),
    make = () => new VerifyWindowScheduler({ depth: 4 }),
  ): VerifyWindowScheduler {
    const scheduler = context.with(inside, make);
    schedulers.push(scheduler);
    return scheduler;
  }

  /** The windows that have a span, by trace and id: one for each span. */
  get windows(): string[] {
    return this.tracing
      .spans(SPAN_LLAMA_STAGE_VERIFY_WINDOW)
      .map(
        (span) =>
          `${span.spanContext().traceId} ${span.attributes[ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID]}`,
      );
  }
}

/** Opens windows and completes them. */
export function verify(scheduler: VerifyWindowScheduler, windows = 1): void {
  for (let step = 0; step < windows; step++) scheduler.completeNext(scheduler.open(0, step).id);
}
