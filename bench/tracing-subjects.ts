import { type Context, ROOT_CONTEXT, SpanKind, trace } from '@opentelemetry/api';
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  type Sampler,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { VerifyWindowScheduler, VerifyWindowTracer } from 'llama-stage-otel';
import * as semconv from 'llama-stage-otel/semconv';
import { scheduling } from './own-subjects.js';
import { DEPTH, OUTCOME, type Subject } from './subject.js';

/** Counts the spans, and lets go of them. */
class CountingProcessor implements SpanProcessor {
  ended = 0;
  onStart() {}
  onEnd() {
    this.ended++;
  }
  async forceFlush() {}
  async shutdown() {}
}

/** A provider, and a context with a generation's span of it. */
export function newTrace(sampler?: Sampler) {
  const processor = new CountingProcessor();
  const tracerProvider = new BasicTracerProvider({
    spanProcessors: [processor],
    ...(sampler !== undefined && { sampler }),
  });
  const generation = tracerProvider.getTracer('bench').startSpan('generation');
  const parent = trace.setSpan(ROOT_CONTEXT, generation);
  return { tracerProvider, parent, exported: async () => ({ spans: processor.ended }) };
}

export function unsampled(): Subject {
  const { tracerProvider, parent } = newTrace(new AlwaysOffSampler());
  return scheduling('tracing on, not sampled', traced(tracerProvider, parent));
}

export function sampled(): Subject {
  const { tracerProvider, parent, exported } = newTrace();
  return { ...scheduling('tracing on, sampled', traced(tracerProvider, parent)), exported };
}

function traced(tracerProvider: BasicTracerProvider, parent: Context): VerifyWindowScheduler {
  const scheduler = new VerifyWindowScheduler({ depth: DEPTH });
  // No generation has as many windows as this one; each of them is to get its span.
  const maxWindowSpans = Number.MAX_SAFE_INTEGER;
  new VerifyWindowTracer({ tracerProvider, maxWindowSpans }).observe(scheduler, parent);
  return scheduler;
}

/** The same span by direct calls to the SDK, and no scheduler. */
export function directSpans(): Subject {
  const { tracerProvider, parent, exported } = newTrace();
  const tracer = tracerProvider.getTracer('bench');
  let id = 0;
  return {
    name: 'SDK startSpan, setAttributes, end',
    run(windows) {
      for (let i = 0; i < windows; i++) {
        id++;
        const attributes = {
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID]: id,
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_BASE_POSITION]: id,
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DECODE_STEP]: id,
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT]: 1,
        };
        const span = tracer.startSpan(
          semconv.SPAN_LLAMA_STAGE_VERIFY_WINDOW,
          { kind: SpanKind.CLIENT, attributes },
          parent,
        );
        span.setAttributes({
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT_AFTER]: 0,
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT]: 'partial_accept',
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_PROPOSED_TOKENS]: OUTCOME.proposedTokens,
          [semconv.ATTR_LLAMA_STAGE_VERIFY_WINDOW_ACCEPTED_TOKENS]: OUTCOME.acceptedTokens,
        });
        span.end();
      }
    },
    exported,
  };
}
