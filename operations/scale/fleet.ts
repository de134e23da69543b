import { bytes, number } from './tables.js';
import type { Export } from './worker-metrics.js';

/** What was measured of one worker, and of one of each thing that a backend holds. */
export interface Inputs {
  readonly coordinator: Export;
  readonly stage: Export;
  readonly bytesPerSeries: number;
  readonly cpuSecondsPerSample: number;
  /** Of one chain, with every generation traced. */
  readonly spansPerSecond: number;
  readonly bytesPerSpan: number;
  readonly gzipBytesPerSpan: number;
  readonly heldBytesPerSpan: number;
  readonly gatewayCpuSecondsPerSpan: number;
  readonly storedBytesPerSpan: number;
  readonly secondsOfGeneration: number;
}

export interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

const FLEETS = [10, 1_000, 100_000];
const INTERVALS = [15, 60];
/** A coordinator and three later stages. */
const CHAIN = 4;
/** How many generations the SDK traces. */
const HEAD_SHARES = [1, 0.01];
/** How many of the traced ones the gateway keeps. */
const KEPT = 0.05;
/** Seconds that the gateway holds a trace after its generation has ended. */
const WAIT = 10;
const HOUR = 3600;

/** A fleet of chains of four workers, whose coordinators have depth 4 and one attribute set. */
export function inChains(inputs: Inputs): Table[] {
  const perChain = (figure: keyof Export) =>
    inputs.coordinator[figure] + (CHAIN - 1) * inputs.stage[figure];
  return [
    {
      title: 'Metrics of a fleet',
      columns: [
        'workers',
        'series',
        'memory of Prometheus',
        'interval',
        'samples a second',
        'received a second, gzip',
        'processors',
      ],
      rows: FLEETS.flatMap((workers) =>
        INTERVALS.map((interval) => {
          const chains = workers / CHAIN;
          const series = chains * perChain('series');
          const samples = series / interval;
          return [
            number(workers),
            number(series),
            bytes(series * inputs.bytesPerSeries),
            `${interval} s`,
            number(samples),
            bytes((chains * perChain('gzipBytes')) / interval),
            number(samples * inputs.cpuSecondsPerSample),
          ];
        }),
      ),
    },
    {
      title: 'Traces of a fleet',
      columns: [
        'workers',
        'traced',
        'spans a second',
        'received a second, gzip',
        'held by all gateways',
        'processors of all gateways',
        'kept a second',
        'an hour of it in memory of Jaeger',
      ],
      rows: FLEETS.flatMap((workers) =>
        HEAD_SHARES.map((share) => {
          const spans = (workers / CHAIN) * inputs.spansPerSecond * share;
          const held = spans * (inputs.secondsOfGeneration + WAIT);
          return [
            number(workers),
            `${number(share * 100)} %`,
            number(spans),
            bytes(spans * inputs.gzipBytesPerSpan),
            bytes(held * inputs.heldBytesPerSpan),
            number(spans * inputs.gatewayCpuSecondsPerSpan),
            bytes(spans * KEPT * inputs.bytesPerSpan),
            bytes(spans * KEPT * HOUR * inputs.storedBytesPerSpan),
          ];
        }),
      ),
    },
  ];
}
