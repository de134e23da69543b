import { Bench } from 'tinybench';
import { quantile } from './quantile.js';
import { SIGNALS, type SignalName, type Subject } from './subject.js';

/** Windows in one sample, so that a sample is long against the clock that times it. */
const WINDOWS = 2000;

/** Samples of each subject before the next has its turn. */
const ITERATIONS = 3;

/** Samples that are not counted, while the engine still compiles. */
const WARM_UP = 10;

/** Nanoseconds for a window, by subject; one entry for each round. */
export type Timings = ReadonlyMap<Subject, readonly number[]>;

/** Spread of the ratios of two subjects, each ratio taken within one round. */
export interface Ratio {
  readonly median: number;
  /** The middle half of the rounds lies between these. */
  readonly quartiles: readonly [number, number];
  readonly rounds: number;
}

/**
 * Times all subjects in alternation, so that a machine that is slow for a while is slow for all
 * of them. Each round gives one figure for each subject: the median of its samples.
 */
export async function alternate(
  subjects: readonly Subject[],
  rounds: number,
  onRound: (round: number) => void,
): Promise<Timings> {
  const windows = new Map<Subject, number>();
  const run = (subject: Subject) => {
    windows.set(subject, (windows.get(subject) ?? 0) + WINDOWS);
    return subject.run(WINDOWS);
  };
  for (const subject of subjects) for (let i = 0; i < WARM_UP; i++) await run(subject);
  const timings = new Map<Subject, number[]>(subjects.map((subject) => [subject, []]));
  for (let round = 1; round <= rounds; round++) {
    const bench = new Bench({ iterations: ITERATIONS, time: 0, warmup: false });
    for (const subject of subjects) bench.add(subject.name, () => run(subject));
    await bench.run();
    for (const [index, subject] of subjects.entries()) {
      const result = bench.tasks[index]?.result;
      if (result?.state !== 'completed') throw new Error(`${subject.name} did not complete`);
      timings.get(subject)?.push((result.latency.p50 * 1e6) / WINDOWS);
    }
    onRound(round);
  }
  for (const subject of subjects) await checkSignals(subject, windows.get(subject) ?? 0);
  return timings;
}

export function ratio(timings: Timings, of: Subject, to: Subject): Ratio {
  const base = timings.get(to) ?? [];
  const ratios = (timings.get(of) ?? []).map((ns, round) => ns / (base[round] ?? Number.NaN));
  return {
    median: quantile(ratios, 0.5),
    quartiles: [quantile(ratios, 0.25), quantile(ratios, 0.75)],
    rounds: ratios.length,
  };
}

/** That a subject exported as many signals as its windows make: all are measured doing the same. */
async function checkSignals(subject: Subject, windows: number): Promise<void> {
  const exported = await subject.exported?.();
  if (exported === undefined) return;
  for (const [signal, actual] of Object.entries(exported)) {
    const expected =
      windows * (signal === 'spans' ? (subject.spansEach ?? 1) : SIGNALS[signal as SignalName]);
    if (actual !== expected) {
      throw new Error(`${subject.name} exported ${actual} of ${signal}, not ${expected}`);
    }
  }
}
