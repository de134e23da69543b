import { TableSortByFieldStateBuilder } from '@grafana/grafana-foundation-sdk/common';
import { ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL } from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import * as I from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import {
  acceptanceRate,
  averageInFlight,
  fullFraction,
  parallelFraction,
  quantile,
  rate,
  reverseFallbackFraction,
  staleFraction,
} from '../../promql.js';
import type { Row } from '../assemble.js';
import { current, depth, sharesBy } from '../expressions.js';
import {
  colored,
  dashedThresholds,
  fixed,
  heatmap,
  type Line,
  shades,
  shares,
  stackedShares,
  table,
  thresholds,
  timeseries,
} from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { WINDOWS } from '../variables.js';

const LEVEL = labelName(ATTR_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_LEVEL);

/** Question 3. */
export function occupancy(): Row {
  return {
    title: QUESTIONS[2],
    panels: [
      timeAtLevels(),
      againstDepth(),
      fractions().span(8),
      queueNow().span(8),
      opened().span(8),
      admissions(),
      mostInFlight(),
      generationAverage().span(8),
      generationParallel().span(8),
      generationFull().span(8),
      workersTable().span(24),
    ],
  };
}

function timeAtLevels() {
  return stackedShares(
    {
      title: 'Time at each occupancy level',
      read: "Share of the generations' time with that many windows in flight. Red is nothing in flight, orange a single window, as without pipelining; each darker green is one more. The highest level should have the largest part; in a deep pipeline it stands for that many windows or more.",
      act: 'Much red: the coordinator waits for guesses or drains stale windows; see the horizon and the waste. Much orange with a greater depth: guesses are too short to fill the windows.',
    },
    [
      [
        `{{${LEVEL}}} in flight`,
        sharesBy(LEVEL, I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME, WINDOWS),
      ],
    ],
  )
    .colorScheme(shades('dark-green'))
    .overrideByName('0 in flight', [fixed('semi-dark-red')])
    .overrideByName('1 in flight', [fixed('orange')]);
}

function againstDepth() {
  return colored(
    timeseries(
      {
        title: 'Average in flight, against the depth',
        read: 'Windows in flight of a generation, on average over time, and as many as it may have. The nearer the lines, the better the depth is used. The dashed threshold at 2 is where pipelining begins: below it the windows go mostly one by one.',
        act: 'If the lines stay apart, the depth is not what limits: see whether the horizon stays supplied, and how much time goes into draining. If they touch, and the slowest stage is not busy all the time, try more depth.',
      },
      'suffix: windows',
      [
        ['average in flight', averageInFlight(WINDOWS)],
        ['depth', depth(WINDOWS)],
      ],
    )
      .decimals(1)
      .thresholds(thresholds('orange', [2, 'green']))
      .thresholdsStyle(dashedThresholds()),
    { 'average in flight': 'green', depth: 'text' },
  );
}

function fractions() {
  return colored(
    shares(
      {
        title: 'Parallel and full fractions',
        read: "Share of the generations' time with two or more windows in flight, and with as many as the depth allows. Only parallel time gains anything; only full time could gain from more depth.",
        act: 'A low parallel fraction is a pipeline that runs serially. A high one with a low full fraction has more depth than it can use: a smaller depth wastes less.',
      },
      [
        ['parallel', parallelFraction(WINDOWS)],
        ['full', fullFraction(WINDOWS)],
      ],
    ),
    { parallel: 'light-green', full: 'dark-green' },
  );
}

function queueNow() {
  return colored(
    timeseries(
      {
        title: 'In flight and capacity, at the collection',
        read: 'Windows in flight over all workers, and as many as their live schedulers may have. A collection sees one moment: trust the averages for the long run, and this for what is stuck.',
        act: 'Windows that stay in flight while nothing completes wait for a reply that does not come: see the errors, and whether the stages compute.',
      },
      'suffix: windows',
      [
        ['in flight', current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_IN_FLIGHT, WINDOWS)],
        ['capacity', current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_CAPACITY, WINDOWS)],
      ],
    ),
    { 'in flight': 'green', capacity: 'text' },
  );
}

function opened() {
  return timeseries(
    {
      title: 'Windows opened',
      read: 'Windows that were admitted per second, over all workers. It is the load of the chain; every stage computes each of them.',
      act: 'None with generations under way: they are stuck, or have nothing to verify.',
    },
    'suffix: windows/s',
    [['opened', rate(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED, WINDOWS)]],
  );
}

function admissions() {
  return heatmap(
    {
      title: 'In flight at each admission',
      read: 'Windows per second, by how many were in flight just after they were opened, themselves included. The band should lie at the depth.',
      act: 'A band at 1 means that each window is opened once the one before has come back: the guess never reaches beyond one window.',
    },
    'short',
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY,
    WINDOWS,
  );
}

function mostInFlight() {
  return heatmap(
    {
      title: 'Most in flight in a generation',
      read: 'Generations that ended per second, by the most windows they ever had in flight. All of them should reach the depth at least once.',
      act: 'Generations that never reach the depth are too short, or their guesses are: a smaller depth would serve them as well.',
    },
    'short',
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_MAX_IN_FLIGHT,
    WINDOWS,
  );
}

/** From the bad end on: what counts is how far behind the others some are. */
const LOW_PERCENTILES = [
  [0.05, 'p5', 'orange'],
  [0.5, 'p50', 'green'],
  [0.95, 'p95', 'dark-green'],
] as const;

const LOW_COLORS = Object.fromEntries(LOW_PERCENTILES.map(([, name, color]) => [name, color]));

function lowPercentiles(instrument: Parameters<typeof quantile>[1]): Line[] {
  return LOW_PERCENTILES.map(([q, name]) => [name, quantile(q, instrument, WINDOWS)]);
}

function generationAverage() {
  return heatmap(
    {
      title: 'Average in flight, of single generations',
      read: 'Generations that ended per second, by the windows that they had in flight on average; each range reaches down to the next boundary. The nearer the band to the depth, the better.',
      act: 'A second band below the first: some requests speculate badly; look at traces of generations with few windows in flight.',
    },
    'short',
    I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_AVERAGE_IN_FLIGHT,
    WINDOWS,
  ).links([generationTraces()]);
}

function generationParallel() {
  return colored(
    shares(
      {
        title: 'Parallel fraction, of single generations',
        read: 'How the shares of their time with two or more windows in flight are spread over the generations that ended: p5 is the worst of twenty.',
        act: 'A p5 near nothing beside a good p50: some requests gain nothing from the pipeline, as repetitive text is guessed and new text is not.',
      },
      lowPercentiles(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_FRACTION),
    ),
    LOW_COLORS,
  ).links([generationTraces()]);
}

function generationFull() {
  return colored(
    shares(
      {
        title: 'Full fraction, of single generations',
        read: 'How the shares of their time with the depth used up are spread over the generations that ended: p5 is the worst of twenty.',
        act: 'If even p95 is low, no generation uses the depth: lower it, or lengthen the horizon.',
      },
      lowPercentiles(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_FULL_FRACTION),
    ),
    LOW_COLORS,
  ).links([generationTraces()]);
}

function workersTable() {
  const each = { ...WINDOWS, by: 'job, instance' };
  return table(
    {
      title: 'Coordinators, the emptiest queue first',
      read: 'The figures of each coordinator, as they are now. The one with the fewest windows in flight on average comes first; a click on a title sorts by another.',
      act: 'A coordinator far from the others has other requests, another depth, or a slow chain of its own: choose its instance above, and read the rows with it alone.',
    },
    { job: 'Job', instance: 'Instance' },
    [
      ['Average in flight', 'short', averageInFlight(each)],
      ['Parallel', 'percentunit', parallelFraction(each)],
      ['Full', 'percentunit', fullFraction(each)],
      ['Stale windows', 'percentunit', staleFraction(each)],
      ['Accepted', 'percentunit', acceptanceRate(each)],
      ['Reverse fallback', 'percentunit', reverseFallbackFraction(each)],
    ],
  )
    .decimals(2)
    .sortBy([new TableSortByFieldStateBuilder().displayName('Average in flight').desc(false)]);
}
