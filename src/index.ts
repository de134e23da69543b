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
export { stampGenerationSpan } from './tracing/stamp-generation-span.js';
