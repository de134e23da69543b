import {
  ATTR_LLAMA_STAGE_STAGE_INDEX,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
  SPAN_LLAMA_STAGE_GENERATION,
  SPAN_LLAMA_STAGE_STAGE_COMPUTE,
  SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../../semconv/index.js';
import type { JaegerSpan } from './jaeger.js';

const STAGES = 4;

/**
 * What is missing in a trace of the example: its generation, one of the windows that the generation
 * says it opened, or a stage of a window with its compute.
 */
export function faultsOf(trace: readonly JaegerSpan[]): string[] {
  const named = (name: string) => trace.filter((span) => span.name === name);
  const [generation] = named(SPAN_LLAMA_STAGE_GENERATION);
  if (generation === undefined) return ['no generation'];
  const windows = named(SPAN_LLAMA_STAGE_VERIFY_WINDOW);
  const opened = generation.attributes[ATTR_LLAMA_STAGE_VERIFY_WINDOW_OPENED];
  const faults = windows.length === opened ? [] : [`${windows.length} of ${opened} windows`];
  const computed = new Set(
    named(SPAN_LLAMA_STAGE_STAGE_COMPUTE).map(({ parentSpanId }) => parentSpanId),
  );
  const stages = named(SPAN_LLAMA_STAGE_STAGE_VERIFY_WINDOW);
  for (const window of windows) {
    const indexes = stages
      .filter(({ parentSpanId, spanId }) => parentSpanId === window.spanId && computed.has(spanId))
      .map(({ attributes }) => attributes[ATTR_LLAMA_STAGE_STAGE_INDEX]);
    if (new Set(indexes).size !== STAGES) faults.push(`window ${window.spanId} in ${indexes}`);
  }
  return faults;
}
