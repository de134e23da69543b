import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Context, context, propagation, SpanKind, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { AlwaysOffSampler } from '@opentelemetry/sdk-trace-base';
import {
  extractTraceContext,
  injectTraceContext,
  PipelineTelemetry,
  pipelineAttributes,
  summaryAttributes,
  VerifyWindowScheduler,
} from 'llama-stage-otel';
import { PreaggregatedHistograms } from 'llama-stage-otel/producer';
import * as semconv from 'llama-stage-otel/semconv';
import { BenchReader } from './reader.js';
import { DEPTH, type Subject } from './subject.js';
import { newTrace } from './tracing-subjects.js';

/** What any traced process has: contexts follow the calls, and travel between processes. */
export function setUpPropagation(): void {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
}

/** A histogram of as many buckets as the conventions have. */
const IN_SECONDS = {
  unit: 's',
  advice: {
    explicitBucketBoundaries: [
      0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    ],
  },
};

const MODEL = 'llama-3.1-70b';

function newMeterProvider(): MeterProvider {
  return new MeterProvider({ readers: [new BenchReader()] });
}

/** Generations in one turn of the event loop: V8 keeps until its end what was made weak in it. */
const IN_A_TURN = 10;

/** Starts and ends whole generations that commit five tokens, on the meter and the tracer. */
export function generations(): Subject {
  const { tracerProvider, exported } = newTrace();
  const telemetry = new PipelineTelemetry({ tracerProvider, meterProvider: newMeterProvider() });
  return {
    name: 'a generation, start and end',
    async run(count) {
      for (let i = 0; i < count; i++) {
        if (i % IN_A_TURN === 0) await nextTurn();
        const generation = telemetry.generation({ depth: DEPTH, requestModel: MODEL }).start();
        generation.tokensCommitted(1);
        generation.tokensCommitted(4);
        generation.end();
      }
    },
    exported,
  };
}

/** The same span and the same records by direct calls to the SDK, and no scheduler. */
export function directGenerations(): Subject {
  const { tracerProvider, exported } = newTrace();
  const tracer = tracerProvider.getTracer('bench');
  const meter = newMeterProvider().getMeter('bench');
  const counter = meter.createCounter(semconv.METRIC_LLAMA_STAGE_GENERATION_COUNT);
  const durations = meter.createHistogram(
    semconv.METRIC_GEN_AI_SERVER_REQUEST_DURATION,
    IN_SECONDS,
  );
  const firstTokens = meter.createHistogram(
    semconv.METRIC_GEN_AI_SERVER_TIME_TO_FIRST_TOKEN,
    IN_SECONDS,
  );
  const perTokens = meter.createHistogram(
    semconv.METRIC_GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN,
    IN_SECONDS,
  );
  const stats = new VerifyWindowScheduler({ depth: DEPTH }).stats();
  const figures = { ...pipelineAttributes(stats), ...summaryAttributes(stats) };
  return {
    name: 'the SDK calls for its span and records',
    async run(generations) {
      for (let i = 0; i < generations; i++) {
        if (i % IN_A_TURN === 0) await nextTurn();
        const startedAt = performance.now();
        const attributes = {
          [semconv.ATTR_GEN_AI_OPERATION_NAME]: 'text_completion',
          [semconv.ATTR_GEN_AI_PROVIDER_NAME]: 'llama_stage',
          [semconv.ATTR_GEN_AI_REQUEST_MODEL]: MODEL,
        };
        const parent = context.active();
        const span = tracer.startSpan(semconv.SPAN_LLAMA_STAGE_GENERATION, { attributes }, parent);
        const inside = trace.setSpan(parent, span);
        const firstAt = performance.now();
        const lastAt = performance.now();
        const ended = { ...attributes, [semconv.ATTR_LLAMA_STAGE_GENERATION_OUTCOME]: 'completed' };
        counter.add(1, ended, inside);
        durations.record((performance.now() - startedAt) / 1000, ended, inside);
        firstTokens.record((firstAt - startedAt) / 1000, attributes, inside);
        perTokens.record((lastAt - firstAt) / 4000, attributes, inside);
        span.setAttributes(figures);
        span.setAttribute(semconv.ATTR_LLAMA_STAGE_GENERATION_OUTCOME, 'completed');
        span.end();
      }
    },
    exported,
  };
}

const STAGE = { index: 1, layerStart: 8, layerEnd: 16 };

/** Windows through a stage, each with its three phases. */
export function stageWindows(): Subject {
  const { tracerProvider, parent, exported } = newTrace();
  const telemetry = new PipelineTelemetry({ tracerProvider, meterProvider: newMeterProvider() });
  return { ...windowsThrough(telemetry, parent), name: 'a stage window, sampled', exported };
}

/** The same where the trace is not sampled; with the producer, as three records alone take 2 µs. */
export function unsampledStageWindows(): Subject {
  const { tracerProvider, parent, exported } = newTrace(new AlwaysOffSampler());
  const histograms = new PreaggregatedHistograms();
  const reader = new BenchReader({ metricProducers: [histograms.producer()] });
  const meterProvider = new MeterProvider({ readers: [reader] });
  const telemetry = new PipelineTelemetry({ tracerProvider, meterProvider, histograms });
  const name = 'a stage window, not sampled';
  return { ...windowsThrough(telemetry, parent), name, spansEach: 0, exported };
}

function windowsThrough(telemetry: PipelineTelemetry, parent: Context) {
  const stage = telemetry.stage(STAGE);
  const carrier = injectTraceContext(parent);
  return {
    spansEach: 4,
    run(windows: number) {
      for (let i = 0; i < windows; i++) {
        stage.window(carrier, (window) => {
          window.compute(work);
          window.forwardWrite(work);
          window.downstreamWait(work);
        });
      }
    },
  };
}

/** The same spans and records by direct calls to the SDK. */
export function directStageWindows(): Subject {
  const { tracerProvider, parent, exported } = newTrace();
  const tracer = tracerProvider.getTracer('bench');
  const meter = newMeterProvider().getMeter('bench');
  const attributes = { [semconv.ATTR_LLAMA_STAGE_STAGE_INDEX]: STAGE.index };
  const windowAttributes = {
    ...attributes,
    [semconv.ATTR_LLAMA_STAGE_STAGE_LAYER_START]: STAGE.layerStart,
    [semconv.ATTR_LLAMA_STAGE_STAGE_LAYER_END]: STAGE.layerEnd,
  };
  const phases = [
    [semconv.SPAN_LLAMA_STAGE_STAGE_COMPUTE, semconv.METRIC_LLAMA_STAGE_STAGE_COMPUTE_DURATION],
    [
      semconv.SPAN_LLAMA_STAGE_STAGE_FORWARD_WRITE,
      semconv.METRIC_LLAMA_STAGE_STAGE_FORWARD_WRITE_DURATION,
    ],
    [
      semconv.SPAN_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT,
      semconv.METRIC_LLAMA_STAGE_STAGE_DOWNSTREAM_WAIT_DURATION,
    ],
  ] as const;
  const recorders = phases.map(([span, metric]) => ({
    span,
    histogram: meter.createHistogram(metric, IN_SECONDS),
  }));
  const carrier = injectTraceContext(parent);
  const phase = (inside: Context, { span: name, histogram }: (typeof recorders)[number]) => {
    const span = tracer.startSpan(name, { attributes }, inside);
    const startedAt = performance.now();
    context.with(trace.setSpan(inside, span), work);
    histogram.record((performance.now() - startedAt) / 1000, attributes, inside);
    span.end();
  };
  return {
    name: 'the SDK calls for its spans and records',
    spansEach: 4,
    run(windows) {
      for (let i = 0; i < windows; i++) {
        const from = extractTraceContext(carrier);
        const span = tracer.startSpan(
          semconv.SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
          { kind: SpanKind.SERVER, attributes: windowAttributes },
          from,
        );
        const inside = trace.setSpan(from, span);
        context.with(inside, () => {
          for (const recorder of recorders) phase(inside, recorder);
        });
        span.end();
      }
    },
    exported,
  };
}

/** What a stage works on, which is not measured. */
function work(): void {}
