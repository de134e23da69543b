/**
 * Measures what telemetry costs the pipeline: the same run without an SDK, with metrics, and with
 * metrics and every span exported, in alternation, so that a machine that is slow for a while is slow
 * for all of them. Arguments go to the runs.
 */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { percentile } from './percentile.js';
import type { Report } from './report.js';

const ROUNDS = 7;
const PROGRAM = fileURLToPath(new URL('./main.js', import.meta.url));

/** Takes what is exported, and lets go of it. */
const sink = createServer((request, response) => {
  request.resume().on('end', () => response.end());
});
sink.listen(0, '127.0.0.1');
await once(sink, 'listening');
const endpoint = `http://127.0.0.1:${(sink.address() as AddressInfo).port}`;

const SETTINGS = [
  { name: 'no SDK', args: ['--telemetry', 'off'], env: {} },
  { name: 'metrics', args: [], env: {} },
  { name: 'metrics and traces', args: [], env: { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } },
] as const;

const reports = SETTINGS.map((): Report[] => []);
for (let round = 0; round < ROUNDS; round++) {
  for (let turn = 0; turn < SETTINGS.length; turn++) {
    // Each setting has each place in the order equally often.
    const index = (round + turn) % SETTINGS.length;
    const { args, env } = SETTINGS[index] as (typeof SETTINGS)[number];
    reports[index]?.push(await runOnce(args, env));
    console.error(`round ${round + 1} of ${ROUNDS}: ${SETTINGS[index]?.name}`);
  }
}
sink.close();
sink.closeAllConnections();

const [without = []] = reports;
for (const [index, { name }] of SETTINGS.entries()) {
  const own = reports[index] ?? [];
  const rate = ({ pipelined }: Report) => pipelined.q1.tokensPerSecond;
  const ratios = own.map((report, round) => rate(report) / rate(without[round] as Report));
  const processes = own[0]?.cpuMsPerWindow.map((_, stage) =>
    percentile(
      own.map(({ cpuMsPerWindow }) => cpuMsPerWindow[stage] ?? Number.NaN),
      0.5,
    ).toFixed(2),
  );
  console.log(
    [
      name.padEnd(20),
      `${percentile(own.map(rate), 0.5).toFixed(1)} tokens/s`.padStart(16),
      `${percentile(ratios, 0.5).toFixed(3)} of no SDK`.padStart(18),
      `  CPU ms for each window: ${processes?.join(', ')}`,
    ].join(''),
  );
}

async function runOnce(args: readonly string[], env: NodeJS.ProcessEnv): Promise<Report> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [PROGRAM, '--json', '--prometheus-port', '0', ...args, ...process.argv.slice(2)],
    { env: { ...process.env, ...env }, maxBuffer: 1 << 24 },
  );
  return JSON.parse(stdout);
}
