import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Measurements } from '../../examples/pipeline/measurements.js';
import type { Report } from '../../examples/pipeline/report.js';
import { runExample } from './example.js';
import { findMissing } from './programs.js';
import { Prometheus } from './prometheus.js';

const W = 'llama_stage_verify_window';
const folder = mkdtempSync(join(tmpdir(), 'llama-stage-otel-e2e-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.skipIf(findMissing(['prometheus']))('the real Prometheus, over OTLP', () => {
  let prometheus: Prometheus;
  let report: Report;
  beforeAll(async () => {
    prometheus = await Prometheus.start(folder, []);
    report = await runExample(['--depth', '4', '--generations', '4'], {
      OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: prometheus.metricsEndpoint,
    });
  });
  afterAll(() => prometheus?.stop());

  const sum = (name: string) => `sum by (pipeline_run) (${W}_${name})`;
  test.each<[question: string, promql: string, read: (run: Measurements) => number]>([
    ['windows opened', sum('opened_total'), ({ q3 }) => q3.opened],
    [
      'average in flight',
      `${sum('duration_seconds_sum')} / ${sum('occupancy_time_seconds_total')}`,
      ({ q3 }) => q3.averageInFlight,
    ],
    [
      'the parallel fraction',
      `${sum('parallel_time_seconds_total')} / ${sum('occupancy_time_seconds_total')}`,
      ({ q3 }) => q3.parallelFraction,
    ],
    [
      'the share of stale windows',
      `${sum('stale_discarded_total')} / ${sum('opened_total')}`,
      ({ q6 }) => q6.staleFraction,
    ],
    [
      'the acceptance rate',
      `${sum('accepted_tokens_total')} / ${sum('proposed_tokens_total')}`,
      ({ q7 }) => q7.acceptanceRate,
    ],
    ['refills', sum('horizon_refill_tokens_total'), ({ q8 }) => q8.refillTokens],
  ])('gives %s as the table does', async (_, promql, read) => {
    const samples = await prometheus.query(promql);
    const byRun = Object.fromEntries(
      samples.map(({ metric, value }) => [metric.pipeline_run, value]),
    );
    expect(byRun).toEqual({
      control: expect.closeTo(read(report.control)),
      pipelined: expect.closeTo(read(report.pipelined)),
    });
  });

  test('finds every window accounted for', async () => {
    const [left] = await prometheus.query(
      `sum(${W}_opened_total) - sum(${W}_completed_total) - sum(${W}_in_flight)` +
        ` - (sum(${W}_dropped_total) or vector(0))`,
    );
    expect(left?.value).toBe(0);
  });

  test('has the durations of every stage', async () => {
    const samples = await prometheus.query(
      'sum by (llama_stage_stage_index) (llama_stage_stage_compute_duration_seconds_count)',
    );
    expect(samples.map(({ metric }) => metric.llama_stage_stage_index).sort()).toEqual([
      '0',
      '1',
      '2',
      '3',
    ]);
    const windows = report.control.q3.opened + report.pipelined.q3.opened;
    expect(samples.map(({ value }) => value)).toEqual(Array(4).fill(windows));
  });
});
