import type { Span } from '@opentelemetry/api';
import { pipelineAttributes, summaryAttributes } from '../scheduler/span-attributes.js';
import type { VerifyWindowStats } from '../scheduler/stats.js';

/**
 * Puts the pipeline and the summary attributes of a generation onto its span. Does nothing on a
 * span that does not record.
 */
export function stampGenerationSpan(span: Span, stats: VerifyWindowStats): void {
  if (!span.isRecording()) return;
  span.setAttributes({ ...pipelineAttributes(stats), ...summaryAttributes(stats) });
}
