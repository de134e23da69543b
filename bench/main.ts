/**
 * Measures the package against its bars and its peers. Without arguments it prints a table;
 * `--json` writes all figures as one JSON object to stdout; `--picture FILE` also draws the
 * collection times.
 */
import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { alternate, ratio, type Timings } from './alternate.js';
import { collectionTime } from './collection.js';
import * as face from './face-subjects.js';
import { measureMemory } from './memory.js';
import * as own from './own-subjects.js';
import { directSdk, promClient } from './peers.js';
import { drawCollectionTimes } from './picture.js';
import { quantile } from './quantile.js';
import { type Row, renderTable } from './table.js';
import * as tracing from './tracing-subjects.js';

const ROUNDS = 60;
const LABELS = { model: 'llama-3.1-70b', stage: '0', verdict: 'partial_accept' };

const { values } = parseArgs({
  options: { json: { type: 'boolean', default: false }, picture: { type: 'string' } },
});

const clocks = own.twoClockReadings();
const bare = own.bareScheduler();
const producer = own.withProducerHistograms();
const meter = own.withMeterHistograms();
const sdk = directSdk(LABELS);
const sdkBare = directSdk({});
const promLabels = promClient(LABELS, false);
const promBound = promClient(LABELS, true);
const unsampled = tracing.unsampled();
const sampled = tracing.sampled();
const directSpans = tracing.directSpans();
const subjects = [clocks, bare, producer, meter, sdk, sdkBare, promLabels, promBound];

const timings = await alternate(subjects, ROUNDS, (round) => say(`round ${round} of ${ROUNDS}`));
// Afterwards, as these leave their traces in the engine's picture of what an observer is.
const tracingSubjects = [bare, unsampled, sampled, directSpans];
const tracingTimings = await alternate(tracingSubjects, ROUNDS, (round) =>
  say(`tracing, round ${round} of ${ROUNDS}`),
);
face.setUpPropagation();
const generations = face.generations();
const directGenerations = face.directGenerations();
const stage = face.stageWindows();
const unsampledStage = face.unsampledStageWindows();
const directStage = face.directStageWindows();
const faceTimings = await alternate(
  [generations, directGenerations, stage, unsampledStage, directStage],
  ROUNDS,
  (round) => say(`generations and stages, round ${round} of ${ROUNDS}`),
);
const broken = own.withBrokenObserver();
const brokenTimings = await alternate([bare, broken], ROUNDS / 6, () => say('broken observer'));
say('collection times');
const collections = [];
for (const live of [1, 100, 10_000]) {
  for (const windows of [1000, 1_000_000]) collections.push(await collectionTime(live, windows));
}
say('memory');
const memory = measureMemory();
say('');

const atMost = (bar: number) => ({ bar, isMet: (value: number) => value <= bar, sign: '≤' });
const atLeast = (bar: number) => ({ bar, isMet: (value: number) => value >= bar, sign: '≥' });
const largest = collections.findLast(({ live }) => live === 10_000);
const mostWindows = collections.filter(({ live }) => live === 10_000);
const rows: Row[] = [
  {
    what: 'open + completeNext, no observer / two clock readings',
    ...atMost(1.5),
    ratio: ratio(timings, bare, clocks),
  },
  {
    what: 'all metrics, producer histograms / bare',
    ...atMost(1.3),
    ratio: ratio(timings, producer, bare),
  },
  {
    what: 'all metrics, Meter histograms, no attributes / bare',
    ...atMost(3.5),
    ratio: ratio(timings, meter, bare),
  },
  {
    what: 'SDK calls, three attributes / producer',
    ...atLeast(15),
    ratio: ratio(timings, sdk, producer),
  },
  {
    what: 'an unsampled window, tracing on / bare',
    ...atMost(1.2),
    ratio: ratio(tracingTimings, unsampled, bare),
  },
  {
    what: 'a sampled window / the SDK calls for its span',
    ...atMost(1.2),
    ratio: ratio(tracingTimings, sampled, directSpans),
  },
  {
    what: "a generation's start and end / the SDK calls",
    ...atMost(1.3),
    ratio: ratio(faceTimings, generations, directGenerations),
  },
  {
    what: "a stage's window, three phases, sampled / the SDK calls",
    ...atMost(1.2),
    ratio: ratio(faceTimings, stage, directStage),
  },
  {
    what: "a stage's window, three phases, not sampled, in µs",
    ...atMost(2),
    value: quantile(faceTimings.get(unsampledStage) ?? [], 0.5) / 1000,
  },
  {
    what: 'one collection, 10,000 live, in ms',
    ...atMost(20),
    value: largest?.medianMs ?? Number.NaN,
  },
  {
    what: 'one collection, a million windows / a thousand',
    ...atMost(1.5),
    value: (mostWindows[1]?.medianMs ?? Number.NaN) / (mostWindows[0]?.medianMs ?? Number.NaN),
  },
  {
    what: 'bytes of a live scheduler of depth 8, observed',
    ...atMost(1024),
    value: memory.liveBytes.observed,
  },
  {
    // A million of them, so that what the engine itself keeps or frees meanwhile does not count.
    what: 'bytes left by a closed one',
    ...atMost(1),
    value: memory.growthBytes.afterAMillionClosed / 1e6,
  },
];

const allTimings: Timings = new Map([
  ...brokenTimings,
  ...faceTimings,
  ...tracingTimings,
  ...timings,
]);
if (values.picture !== undefined) writeFileSync(values.picture, drawCollectionTimes(collections));
if (values.json) {
  const nanoseconds = Object.fromEntries(
    [...allTimings].map(([{ name }, ns]) => [
      name,
      {
        median: quantile(ns, 0.5),
        quartiles: [quantile(ns, 0.25), quantile(ns, 0.75)],
        rounds: ns.length,
      },
    ]),
  );
  console.log(
    JSON.stringify({
      node: process.version,
      cpu: cpus()[0]?.model,
      nanoseconds,
      rows,
      collections,
      memory,
    }),
  );
} else {
  console.log(renderTable(rows, allTimings, collections, memory));
}

function say(what: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${what}`);
}
