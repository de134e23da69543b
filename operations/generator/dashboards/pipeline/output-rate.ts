import { AxisPlacement } from '@grafana/grafana-foundation-sdk/common';
import * as A from '../../../../semconv/attributes.js';
import { QUESTIONS } from '../../../../semconv/generator/questions.js';
import * as I from '../../../../semconv/instruments.js';
import { labelName } from '../../prometheus-names.js';
import { outputRateOfOne, rate, type Scope } from '../../promql.js';
import type { Row } from '../assemble.js';
import { current, depth, generationsUnderWay } from '../expressions.js';
import { colored, fixed, timeseries } from '../panels.js';
import { generationTraces } from '../trace-link.js';
import { WINDOWS } from '../variables.js';

const TOKENS = 'suffix: tokens/s';
const ERROR_TYPE = labelName(A.ATTR_ERROR_TYPE);
const OUTCOME = labelName(A.ATTR_LLAMA_STAGE_GENERATION_OUTCOME);

/** Question 1. */
export function outputRate(): Row {
  return {
    title: QUESTIONS[0],
    panels: [rateOfOne(), committedTokens(), finished(), underWay()],
  };
}

function rateOfOne() {
  return timeseries(
    {
      title: 'Output rate of one generation',
      read: 'Tokens per second that a generation commits while its scheduler lives: the committed tokens, in the time that there were generations. The dashed line, on the right, is the depth of those under way. Pipelining helps as far as the rate rises above that of a control at depth 1: set the depth to 1 for a while, or compare with a job that has it.',
      act: 'A rate no better than that of depth 1 has its cause in one of the rows below: a queue that is not full, waste, or guesses that are rejected.',
    },
    TOKENS,
    [
      ['tokens per second', outputRateOfOne(WINDOWS)],
      ['depth', depth(WINDOWS)],
    ],
  ).overrideByName('depth', [
    fixed('text'),
    { id: 'unit', value: 'suffix: windows' },
    { id: 'custom.axisPlacement', value: AxisPlacement.Right },
    { id: 'custom.fillOpacity', value: 0 },
    { id: 'custom.lineStyle', value: { fill: 'dash', dash: [10, 10] } },
  ]);
}

function committedTokens() {
  return colored(
    timeseries(
      {
        title: 'Committed tokens of all generations',
        read: 'Tokens per second, over all workers, counted as they are committed: also those of generations that failed or were called off later.',
        act: 'Compare with the generations under way: fewer of them give fewer tokens. A fall with as many under way shows in the rate of one generation too.',
      },
      TOKENS,
      [['committed', rate(I.INSTRUMENT_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS, WINDOWS)]],
    ),
    { committed: 'blue' },
  );
}

function finished() {
  return timeseries(
    {
      title: 'Generations finished',
      read: 'Generations per second by how they ended: completed, cancelled by the client or the server, or abandoned (never ended, and garbage-collected); and those that failed, by the type of their error.',
      act: 'Failed generations point at the coordinator, or at a stage that is gone: the traces have the error. Abandoned ones are a fault of the coordinator, which lost them. None at all, with generations under way, means that they hang.',
    },
    'reqps',
    [
      [`{{${OUTCOME}}}`, endings()],
      [`failed {{${ERROR_TYPE}}}`, failures()],
    ],
  )
    .overrideByName('completed', [fixed('green')])
    .overrideByName('cancelled', [fixed('text')])
    .overrideByName('abandoned', [fixed('orange')])
    .links([generationTraces()]);
}

function endings(): string {
  return rate(
    I.INSTRUMENT_LLAMA_STAGE_GENERATION_COUNT,
    { ...WINDOWS, by: OUTCOME },
    { match: `${OUTCOME}!="${A.LLAMA_STAGE_GENERATION_OUTCOME_VALUE_FAILED}"` },
  );
}

function failures(): string {
  const match = `${WINDOWS.match}, ${ERROR_TYPE}!=""`;
  const failed = requests({ ...WINDOWS, match, by: ERROR_TYPE });
  return `${failed} or (0 * ${requests(WINDOWS)} unless on () ${failed})`;
}

function requests(scope: Scope): string {
  return rate(I.INSTRUMENT_GEN_AI_SERVER_REQUEST_DURATION, scope, { suffix: '_count' });
}

function underWay() {
  return timeseries(
    {
      title: 'Generations under way',
      read: 'Live schedulers, one for each generation: as the last collection found them, and on average over the interval, which short generations cannot slip through.',
      act: 'A number that only grows means that schedulers are not closed: each holds its windows until it is. Zero means that no request comes in.',
    },
    'short',
    [
      [
        'at the collection',
        current(I.INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_SCHEDULER_COUNT, WINDOWS),
      ],
      ['on average', generationsUnderWay(WINDOWS)],
    ],
  );
}
