// The layers that PipelineTelemetry is made of.
export type { HistogramBackend, HistogramRecorder } from './histograms/histogram-backend.js';
export {
  VerifyWindowMetrics,
  type VerifyWindowMetricsOptions,
} from './metrics/verify-window-metrics.js';
export {
  type GenerationPlan,
  PipelineTelemetry,
  type PipelineTelemetryOptions,
} from './pipeline-telemetry.js';
// The scheduler, which knows nothing of OpenTelemetry.
export { type DropReason, MAX_DEPTH, type Tally, type WindowVerdict } from './scheduler/counts.js';
export { SCHEDULER_CHANNEL } from './scheduler/discovery.js';
export { VerifyWindowError, type VerifyWindowErrorCode } from './scheduler/error.js';
export type { SchedulerObserver } from './scheduler/observer.js';
export {
  parseResponseTimings,
  type ReportedStats,
  type ResponseTimings,
  responseTimings,
} from './scheduler/response-timings.js';
export {
  type SchedulerCreated,
  type StaleExecution,
  type VerifyWindowObserver,
  VerifyWindowScheduler,
  type VerifyWindowSchedulerOptions,
} from './scheduler/scheduler.js';
export {
  type GenerationAttributes,
  pipelineAttributes,
  summaryAttributes,
  type VerifyWindowStats,
} from './scheduler/stats.js';
export type { VerifyWindow, WindowOutcome } from './scheduler/verify-window.js';
export {
  type Generation,
  type GenerationOptions,
  GenerationTelemetry,
  type GenerationTelemetryOptions,
  type RunResult,
} from './tracing/generation-telemetry.js';
export {
  type StageIdentity,
  StageTelemetry,
  type StageTelemetryOptions,
  type StageWindow,
  type StartedStageWindow,
} from './tracing/stage-telemetry.js';
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
  windowContext,
} from './tracing/verify-window-tracer.js';
export { stampGenerationSpan, type WindowSpanHook } from './tracing/window-spans.js';
