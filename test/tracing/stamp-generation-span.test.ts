import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { expect, test, vi } from 'vitest';
import * as ATTRIBUTES from '../../semconv/attributes.js';
import {
  pipelineAttributes,
  stampGenerationSpan,
  summaryAttributes,
  VerifyWindowScheduler,
} from '../../src/index.js';

function finishedGeneration() {
  let ms = 0;
  const scheduler = new VerifyWindowScheduler({ depth: 2, clock: () => ms });
  scheduler.open(0, 0);
  scheduler.open(4, 4);
  ms = 30;
  scheduler.completeNext(1);
  ms = 40;
  scheduler.markDirectPredictionReturn(true);
  scheduler.recordHorizonRefill(5);
  scheduler.close();
  return scheduler.stats();
}

test('a recording span gets the pipeline and the summary attributes', () => {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter)],
  });
  const stats = finishedGeneration();
  const span = provider.getTracer('test').startSpan('generation');
  stampGenerationSpan(span, stats);
  span.end();
  const [exported] = exporter.getFinishedSpans();
  expect(exported?.attributes).toEqual({
    ...pipelineAttributes(stats),
    ...summaryAttributes(stats),
  });
  expect(Object.keys(exported?.attributes ?? {})).toHaveLength(6 + 18);
  expect(exported?.attributes).toMatchObject({
    [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DEPTH]: 2,
    [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_MS_BY_DEPTH]: [0, 10, 30],
    [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_AVERAGE_IN_FLIGHT]: 1.75,
    [ATTRIBUTES.ATTR_LLAMA_STAGE_VERIFY_WINDOW_DIRECT_RETURN_UPSTREAM_OPENED]: true,
  });
});

test('a span that does not record is left alone', () => {
  const provider = new BasicTracerProvider({ sampler: new AlwaysOffSampler() });
  const span = provider.getTracer('test').startSpan('generation');
  const setAttributes = vi.spyOn(span, 'setAttributes');
  stampGenerationSpan(span, finishedGeneration());
  expect(setAttributes).not.toHaveBeenCalled();
});
