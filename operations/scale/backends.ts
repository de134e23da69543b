import { readFileSync } from 'node:fs';
import { Collector } from '../../test/e2e/collector.js';
import { Jaeger } from '../../test/e2e/jaeger.js';
import { until } from '../../test/e2e/programs.js';
import { Prometheus } from '../../test/e2e/prometheus.js';
import { copyTraces, measureTraces, type RecordedTraces } from './recorded-traces.js';
import { coordinatorMetrics, encode, measureExport } from './worker-metrics.js';

/** What a program took for so many of something. */
export interface Footprint {
  readonly count: number;
  /** Bytes of memory for each, from what it held without any to what it held with all. */
  readonly bytesEach: number;
  /** Seconds of processor time for each. */
  readonly cpuSecondsEach: number;
}

/** A program under measurement. */
interface Usage {
  readonly rss: number;
  readonly cpuSeconds: number;
}

const DEPTH = 4;
const INTERVALS = 4;
const COPIES = 40;
const HELD_SECONDS = 45;

/**
 * Lets the real Prometheus take the metrics of so many coordinators, {@link INTERVALS} times each;
 * `series` is what it counts itself.
 */
export async function measurePrometheus(
  folder: string,
  workers: number,
): Promise<{ readonly series: Footprint; readonly samples: Footprint; readonly counted: number }> {
  const prometheus = await Prometheus.start(folder, {});
  try {
    const before = usageOf(prometheus.pid);
    let sent = 0;
    for (let interval = 0; interval < INTERVALS; interval++) {
      for (let worker = 0; worker < workers; worker++) {
        const metrics = await coordinatorMetrics(DEPTH, 1, `worker-${worker}`);
        sent += measureExport(metrics).series;
        await post(prometheus.metricsEndpoint, encode(metrics));
      }
    }
    const after = await settled(prometheus.pid);
    const [series] = await prometheus.query('count({job="scale"})');
    const count = series?.value ?? 0;
    return {
      series: footprint(before, after, count),
      samples: footprint(before, after, sent),
      counted: count / workers,
    };
  } finally {
    await prometheus.stop();
  }
}

/** Lets the gateway hold the recorded traces many times over, undecided. */
export async function measureGateway(
  recorded: RecordedTraces,
): Promise<{ readonly gateway: Footprint; readonly agent: Footprint }> {
  const gateway = await Collector.start(['gateway.yaml'], {
    DECISION_WAIT: `${HELD_SECONDS}s`,
    DECISION_WAIT_AFTER_ROOT: `${HELD_SECONDS}s`,
    // Keeps nothing: what is kept would cost its export too.
    KEEP_RECOVERY_EPOCHS: '1000000',
    KEEP_SLOW_WINDOW: '1h',
    KEEP_PERCENT: '0',
  });
  const resolver = { dns: null, static: { hostnames: [gateway.grpcAddress] } };
  const override = { exporters: { 'load_balancing/traces': { resolver } } };
  const agent = await Collector.start(['agent.yaml', 'guards.yaml', override], {
    GATEWAY_INSECURE: 'true',
  });
  try {
    const before = { gateway: usageOf(gateway.pid), agent: usageOf(agent.pid) };
    const count = await sendCopies(recorded, `${agent.endpoint}/v1/traces`);
    const { generations } = measureTraces(recorded);
    const decided = () =>
      gateway.counter('otelcol_processor_tail_sampling_global_count_traces_sampled');
    await until('the gateway to have all spans', async () => {
      const accepted = await gateway.counter('otelcol_receiver_accepted_spans');
      return accepted >= count ? true : undefined;
    });
    const { bytesEach } = footprint(before.gateway, usageOf(gateway.pid), count);
    if ((await decided()) > 0) throw new Error('the gateway decided before it had all spans');
    await until('the decisions', async () =>
      (await decided()) === generations * COPIES ? true : undefined,
    );
    return {
      gateway: { ...footprint(before.gateway, await settled(gateway.pid), count), bytesEach },
      agent: footprint(before.agent, usageOf(agent.pid), count),
    };
  } finally {
    await agent.stop();
    await gateway.stop();
  }
}

/** Lets Jaeger store the recorded traces many times over, in memory. */
export async function measureJaeger(recorded: RecordedTraces): Promise<Footprint> {
  const jaeger = await Jaeger.start();
  try {
    const before = usageOf(jaeger.pid);
    const count = await sendCopies(recorded, jaeger.tracesEndpoint);
    return footprint(before, await settled(jaeger.pid), count);
  } finally {
    await jaeger.stop();
  }
}

/** @returns how many spans were sent. */
async function sendCopies(recorded: RecordedTraces, url: string): Promise<number> {
  const { spans } = measureTraces(recorded);
  for (let copy = 1; copy <= COPIES; copy++) {
    for (const body of copyTraces(recorded, copy)) await post(url, body);
  }
  return spans * COPIES;
}

async function post(url: string, body: Uint8Array<ArrayBuffer>): Promise<void> {
  const headers = { 'content-type': 'application/x-protobuf' };
  const response = await fetch(url, { method: 'POST', headers, body });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
}

function footprint(before: Usage, after: Usage, count: number): Footprint {
  return {
    count,
    bytesEach: (after.rss - before.rss) / count,
    cpuSecondsEach: (after.cpuSeconds - before.cpuSeconds) / count,
  };
}

/** What a program uses once it has worked off what was sent to it. */
async function settled(pid: number | undefined): Promise<Usage> {
  let busy = -1;
  return until('the program to come to rest', async () => {
    const usage = usageOf(pid);
    const isAtRest = usage.cpuSeconds === busy;
    busy = usage.cpuSeconds;
    return isAtRest ? usage : undefined;
  });
}

/** Linux's own figures. */
function usageOf(pid: number | undefined): Usage {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // Past the name, which may hold blanks: the 12th and 13th are user and system time.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const TICKS_PER_SECOND = 100;
  return {
    rss: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024,
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND,
  };
}
