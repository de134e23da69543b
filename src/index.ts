export {
  VerifyWindowMetrics,
  type VerifyWindowMetricsOptions,
} from './metrics/verify-window-metrics.js';
export { SCHEDULER_CHANNEL, type SchedulerCreated } from './scheduler/channel.js';
export { VerifyWindowError, type VerifyWindowErrorCode } from './scheduler/error.js';
export type { VerifyWindowObserver } from './scheduler/observer.js';
export {
  parseResponseTimings,
  type ResponseTimings,
  responseTimings,
} from './scheduler/response-timings.js';
export {
  MAX_DEPTH,
  type StaleExecution,
  VerifyWindowScheduler,
  type VerifyWindowSchedulerOptions,
} from './scheduler/scheduler.js';
export {
  type GenerationAttributes,
  pipelineAttributes,
  summaryAttributes,
} from './scheduler/span-attributes.js';
export type { VerifyWindowStats } from './scheduler/stats.js';
export type { Tally } from './scheduler/tally.js';
export type {
  DropReason,
  VerifyWindow,
  WindowOutcome,
  WindowVerdict,
} from './scheduler/verify-window.js';
export {
  type GenerationInProgress,
  type GenerationOptions,
  GenerationTelemetry,
  type GenerationTelemetryOptions,
} from './tracing/generation-telemetry.js';
export {
  StageTelemetry,
  type StageTelemetryOptions,
  type StageWindow,
} from './tracing/stage-telemetry.js';
export { stampGenerationSpan } from './tracing/stamp-generation-span.js';
export {
  decodeTraceCarrier,
  encodeTraceCarrier,
  extractTraceContext,
  injectTraceContext,
  type TraceCarrier,
} from './tracing/trace-carrier.js';
export {
  VerifyWindowTracer,
  type VerifyWindowTracerOptions,
} from './tracing/verify-window-tracer.js';
export { windowContext } from './tracing/window-context.js';
export type { WindowSpanHook } from './tracing/window-spans.js';
