import { context, DiagLogLevel, diag, metrics, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterEach, beforeEach, vi } from 'vitest';

/** Sets up what an SDK registers with the API besides providers, and takes it all away again. */
export function useApi(): void {
  beforeEach(() => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  });
  afterEach(() => {
    for (const api of [context, diag, metrics, propagation, trace]) api.disable();
    vi.restoreAllMocks();
  });
}

/** A tracer provider as a process has one, and what comes out at its end. */
export class Tracing {
  readonly provider: BasicTracerProvider;
  readonly #exporter = new InMemorySpanExporter();

  constructor(options: { sampler?: Sampler; processors?: SpanProcessor[] } = {}) {
    const { sampler, processors = [] } = options;
    this.provider = new BasicTracerProvider({
      spanProcessors: [new SimpleSpanProcessor(this.#exporter), ...processors],
      ...(sampler !== undefined && { sampler }),
    });
  }

  /** The host's own tracer. */
  get tracer() {
    return this.provider.getTracer('host');
  }

  /** The spans that ended, in that order. */
  spans(name?: string): ReadableSpan[] {
    const spans = this.#exporter.getFinishedSpans();
    return name === undefined ? [...spans] : spans.filter((span) => span.name === name);
  }

  /** The one span of that name. */
  span(name: string): ReadableSpan {
    const [span, ...others] = this.spans(name);
    if (span === undefined || others.length > 0) {
      throw new Error(`${others.length + (span ? 1 : 0)} spans are named ${name}`);
    }
    return span;
  }
}

/** A part of the host's SDK that is broken in this place. */
export function brokenProcessor(...places: ('onStart' | 'onEnd')[]): SpanProcessor {
  const fail = () => {
    throw new Error('broken processor');
  };
  return {
    onStart: places.includes('onStart') ? fail : () => {},
    onEnd: places.includes('onEnd') ? fail : () => {},
    forceFlush: async () => {},
    shutdown: async () => {},
  };
}

/** What is logged through the API at this level. */
export function listenToDiag(level: 'error' | 'warn' = 'error') {
  const logger = { error: vi.fn(), warn: vi.fn(), info: vi.fn(), debug: vi.fn(), verbose: vi.fn() };
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN });
  return logger[level];
}

/** When a span started or ended, in nanoseconds. */
export function nanoseconds([seconds, nanos]: readonly [number, number]): bigint {
  return BigInt(seconds) * 1_000_000_000n + BigInt(nanos);
}

export function isParent(parent: ReadableSpan, child: ReadableSpan): boolean {
  const { traceId, spanId } = parent.spanContext();
  return child.parentSpanContext?.spanId === spanId && child.parentSpanContext.traceId === traceId;
}
