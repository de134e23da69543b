import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '..');

/** A worker that knows of schedulers and, by whatever means, of an SDK: not of instrumentation. */
const GENERATE = `{
  const { VerifyWindowScheduler } = await import('llama-stage-otel');
  const scheduler = new VerifyWindowScheduler({ depth: 2 });
  scheduler.completeNext(scheduler.open(0, 0).id);
}`;

const REGISTER_SDK = `
  const { metrics } = await import('@opentelemetry/api');
  const { MeterProvider, MetricReader } = await import('@opentelemetry/sdk-metrics');
  class Reader extends MetricReader {
    async onForceFlush() {}
    async onShutdown() {}
  }
  const reader = new Reader();
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
`;

const PRINT = `
  const { resourceMetrics } = await reader.collect();
  for (const { descriptor, dataPoints } of resourceMetrics.scopeMetrics.flatMap((s) => s.metrics)) {
    if (descriptor.name.endsWith('.opened')) console.log(descriptor.name, dataPoints[0].value);
  }
`;

function run(program: string, ...flags: string[]): string {
  const args = [...flags, '--input-type=module', '-e', program];
  return execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
}

describe('--import llama-stage-otel/register', () => {
  test.each([
    ['before its first generation', REGISTER_SDK + GENERATE + GENERATE + PRINT],
    ['after its first generation', GENERATE + REGISTER_SDK + GENERATE + PRINT],
  ])('instruments a worker whose SDK is registered %s', (_, program) => {
    const told = run(program, '--import', 'llama-stage-otel/register');
    expect(told).toBe('llama_stage.verify_window.opened 2\n');
    expect(run(program)).toBe('');
  });

  test('lets a worker without an SDK end as it would, and say nothing', () => {
    expect(run(GENERATE, '--import', 'llama-stage-otel/register')).toBe('');
  });
});
