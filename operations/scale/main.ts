/**
 * Measures the inputs of operations/scale.md, and prints them and what follows from them as its
 * tables. Takes some minutes, and the programs that test/e2e/build-backends.sh builds; all of it
 * stays on the loopback interface.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { measureGateway, measureJaeger, measurePrometheus } from './backends.js';
import { type Inputs, inChains } from './fleet.js';
import { measureTraces, recordTraces } from './recorded-traces.js';
import { number, table } from './tables.js';
import { coordinatorMetrics, measureExport, stageMetrics } from './worker-metrics.js';

const DEPTHS = [1, 4, 8, 16];
const SETS = [1, 10, 100];
const PROMETHEUS_WORKERS = [200, 400];
const GENERATIONS = 4;

const stage = measureExport(await stageMetrics());
const rows: string[][] = [
  [
    'a later stage',
    '',
    number(stage.series),
    number(stage.nativeSeries),
    number(stage.bytes),
    number(stage.gzipBytes),
  ],
];
for (const depth of DEPTHS) {
  for (const sets of SETS) {
    const { bytes, gzipBytes, nativeSeries, series } = measureExport(
      await coordinatorMetrics(depth, sets),
    );
    rows.push([
      `depth ${depth}`,
      number(sets),
      number(series),
      number(nativeSeries),
      number(bytes),
      number(gzipBytes),
    ]);
  }
}
say(
  'Series and bytes of one export',
  ['worker', 'attribute sets', 'series', 'with native histograms', 'bytes', 'gzip'],
  rows,
);

const { secondsOfGeneration, traces, windowsPerSecond } = await recordTraces(GENERATIONS);
const sizes = measureTraces(traces);
say(
  'Spans of the example',
  ['span', 'for each window', 'bytes'],
  Object.entries(sizes.bySpan).map(([name, { count, meanBytes }]) => [
    `\`${name}\``,
    number(count / sizes.windows),
    number(meanBytes),
  ]),
);
const spansPerWindow = sizes.spans / sizes.windows;
say(
  'Traces of the example',
  ['what', 'figure'],
  [
    ['spans for each window', number(spansPerWindow)],
    ['windows of a generation', number(sizes.windows / sizes.generations)],
    ['bytes for each span, with its share of the request', number(sizes.bytes / sizes.spans)],
    ['the same, gzip', number(sizes.gzipBytes / sizes.spans)],
    ['windows a second of a coordinator', number(windowsPerSecond)],
    ['seconds of a generation', number(secondsOfGeneration)],
  ],
);

const folder = mkdtempSync(join(tmpdir(), 'llama-stage-otel-scale-'));
const measured = [];
for (const workers of PROMETHEUS_WORKERS) {
  measured.push(await measurePrometheus(join(folder), workers));
  rmSync(join(folder, 'tsdb'), { recursive: true });
}
rmSync(folder, { recursive: true });
const prometheus = measured.at(-1) as (typeof measured)[number];
const { agent, gateway } = await measureGateway(traces);
const jaeger = await measureJaeger(traces);
say(
  'What each takes',
  ['program', 'of', 'how many', 'bytes of memory', 'µs of processor'],
  [
    ...measured.map(({ series }) => [
      'Prometheus',
      'series',
      number(series.count),
      number(series.bytesEach),
      '',
    ]),
    ...measured.map(({ samples }) => [
      'Prometheus',
      'sample',
      number(samples.count),
      '',
      number(samples.cpuSecondsEach * 1e6),
    ]),
    ['agent', 'span', number(agent.count), '', number(agent.cpuSecondsEach * 1e6)],
    [
      'gateway',
      'span held',
      number(gateway.count),
      number(gateway.bytesEach),
      number(gateway.cpuSecondsEach * 1e6),
    ],
    [
      'Jaeger',
      'span stored',
      number(jaeger.count),
      number(jaeger.bytesEach),
      number(jaeger.cpuSecondsEach * 1e6),
    ],
  ],
);
say(
  'Series of a coordinator at depth 4',
  ['counted by', 'series'],
  [
    ['the SDK', number(measureExport(await coordinatorMetrics(4, 1)).series)],
    ['Prometheus', number(prometheus.counted)],
  ],
);

const inputs: Inputs = {
  coordinator: measureExport(await coordinatorMetrics(4, 1)),
  stage,
  bytesPerSeries: prometheus.series.bytesEach,
  cpuSecondsPerSample: prometheus.samples.cpuSecondsEach,
  spansPerSecond: windowsPerSecond * spansPerWindow,
  bytesPerSpan: sizes.bytes / sizes.spans,
  gzipBytesPerSpan: sizes.gzipBytes / sizes.spans,
  heldBytesPerSpan: gateway.bytesEach,
  gatewayCpuSecondsPerSpan: gateway.cpuSecondsEach,
  storedBytesPerSpan: jaeger.bytesEach,
  secondsOfGeneration,
};
for (const { columns, rows, title } of inChains(inputs)) say(title, columns, rows);

function say(
  title: string,
  columns: readonly string[],
  body: readonly (readonly string[])[],
): void {
  console.log(`${title}\n\n${table(columns, body)}\n`);
}
