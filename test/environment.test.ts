import { channel } from 'node:diagnostics_channel';
import { metrics, trace } from '@opentelemetry/api';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED,
  SPAN_LLAMA_STAGE_VERIFY_WINDOW,
} from '../semconv/index.js';
import { SCHEDULER_CHANNEL, VerifyWindowScheduler } from '../src/index.js';
import {
  VerifyWindowInstrumentation,
  type VerifyWindowInstrumentationConfig,
} from '../src/instrumentation.js';
import { ManualReader, providerWith } from './metrics/collected.js';
import { listenToDiag, Tracing, useApi } from './tracing/sdk.js';

const OPENED = METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED;
const PREFIX = 'OTEL_INSTRUMENTATION_LLAMA_STAGE_';
const BOOLEANS = [
  ['ENABLED', 'enabled'],
  ['METRICS_ENABLED', 'metrics'],
  ['SPANS_ENABLED', 'spans'],
  ['REQUIRE_PARENT_SPAN', 'requireParentSpan'],
] as const;
const INTEGERS = [
  ['MAX_ATTRIBUTE_SETS', 'maxAttributeSets', 1],
  ['MAX_WINDOW_SPANS', 'maxWindowSpans', 0],
] as const;

let configFromEnvironment: (
  environment: Readonly<Record<string, string | undefined>>,
) => VerifyWindowInstrumentationConfig;

useApi();

beforeEach(async () => {
  // Each warning is given once in a process: so each test has a copy of its own.
  vi.resetModules();
  ({ configFromEnvironment } = await import('../src/instrumentation.js'));
});

afterAll(() => vi.unstubAllEnvs());

/** The configuration by variables whose names are without what they all begin with. */
function configFrom(variables: Readonly<Record<string, string | undefined>>) {
  return configFromEnvironment(
    Object.fromEntries(Object.entries(variables).map(([name, value]) => [PREFIX + name, value])),
  );
}

/** What a worker with an SDK exports of two windows in each of three schedulers. */
async function generate() {
  const tracing = new Tracing();
  const reader = new ManualReader();
  trace.setGlobalTracerProvider(tracing.provider);
  metrics.setGlobalMeterProvider(providerWith(reader));
  for (const depth of [1, 2, 3]) {
    using scheduler = new VerifyWindowScheduler({ depth });
    for (let i = 0; i < 2; i++) scheduler.completeNext(scheduler.open(i, i).id);
  }
  return {
    collected: await reader.read(),
    windows: tracing.spans(SPAN_LLAMA_STAGE_VERIFY_WINDOW),
  };
}

/** The attributes that a variable gives to the metrics of every scheduler. */
function attributesFrom(text: string) {
  return configFrom({ METRIC_ATTRIBUTES: text }).metricAttributes?.({} as VerifyWindowScheduler);
}

describe('an environment', () => {
  test.each<[string, Readonly<Record<string, string | undefined>>]>([
    ['without a variable', {}],
    ['with variables of others', { OTEL_SERVICE_NAME: 'worker', ENABLED: 'false' }],
    ['with variables that are not set', { [`${PREFIX}ENABLED`]: undefined }],
    ['with variables that are empty', { [`${PREFIX}ENABLED`]: '', [`${PREFIX}SPANS`]: '  ' }],
    ['with a name in small letters', { [`${PREFIX}enabled`.toLowerCase()]: 'false' }],
  ])('%s leaves all at its default, and says nothing', (_, environment) => {
    const warn = listenToDiag('warn');
    expect(configFromEnvironment(environment)).toEqual({});
    expect(warn).not.toHaveBeenCalled();
  });

  test('may set everything at once', () => {
    const { metricAttributes, ...config } = configFrom({
      ENABLED: 'false',
      METRICS_ENABLED: 'true',
      SPANS_ENABLED: 'false',
      REQUIRE_PARENT_SPAN: 'false',
      MAX_ATTRIBUTE_SETS: '7',
      MAX_WINDOW_SPANS: '50',
      METRIC_ATTRIBUTES: 'pool=a',
    });
    expect(config).toEqual({
      enabled: false,
      metrics: true,
      spans: false,
      requireParentSpan: false,
      maxAttributeSets: 7,
      maxWindowSpans: 50,
    });
    expect(metricAttributes?.({} as VerifyWindowScheduler)).toEqual({ pool: 'a' });
  });

  test('that is wrong in one place counts in the others', () => {
    listenToDiag();
    expect(configFrom({ ENABLED: 'perhaps', MAX_WINDOW_SPANS: '50' })).toEqual({
      maxWindowSpans: 50,
    });
  });
});

describe.each(BOOLEANS)('%s', (name, option) => {
  test.each([
    ['true', true],
    ['TRUE', true],
    ['False', false],
    [' false ', false],
  ])('may be %j', (text, value) => {
    expect(configFrom({ [name]: text })).toEqual({ [option]: value });
  });

  test('that is neither true nor false is said once, and stays at its default', () => {
    const warn = listenToDiag('warn');
    for (const text of ['1', '0', 'yes', 'on', 'truetrue', 'null', '"true"']) {
      expect(configFrom({ [name]: text })).toEqual({});
    }
    expect(warn).toHaveBeenCalledTimes(1);
    expect(warn).toHaveBeenCalledWith(
      `llama-stage-otel: ${PREFIX}${name} must be true or false; it is ignored`,
    );
  });
});

describe.each(INTEGERS)('%s', (name, option, least) => {
  test.each([`${least}`, '1', '007', ' 2000 ', `${Number.MAX_SAFE_INTEGER}`])(
    'may be %j',
    (text) => {
      expect(configFrom({ [name]: text })).toEqual({ [option]: Number(text) });
    },
  );

  test('that is out of its range is said once, and stays at its default', () => {
    const warn = listenToDiag('warn');
    const wrong = [
      '-1',
      '1.5',
      '1e3',
      '0x10',
      'NaN',
      'Infinity',
      'many',
      '7 8',
      '9007199254740992',
    ];
    for (const text of [...wrong, ...(least > 0 ? ['0'] : [])]) {
      expect(configFrom({ [name]: text })).toEqual({});
    }
    expect(warn).toHaveBeenCalledTimes(1);
    expect(warn).toHaveBeenCalledWith(
      `llama-stage-otel: ${PREFIX}${name} must be an integer of at least ${least}; it is ignored`,
    );
  });
});

describe('METRIC_ATTRIBUTES', () => {
  test.each<[string, Record<string, string>]>([
    ['pool=a', { pool: 'a' }],
    ['pool=a,region=eu', { pool: 'a', region: 'eu' }],
    [' pool = a , region = eu ', { pool: 'a', region: 'eu' }],
    ['pool=a%2Cb%3Dc', { pool: 'a,b=c' }],
    ['pool=a=b', { pool: 'a=b' }],
    ['pool=', { pool: '' }],
    ['pool=1', { pool: '1' }],
    ['pool=a,pool=b', { pool: 'b' }],
    ['gen_ai.request.model=llama-3.1-70b', { 'gen_ai.request.model': 'llama-3.1-70b' }],
    ['name=Z%C3%BCrich', { name: 'Zürich' }],
  ])('may be %j', (text, attributes) => {
    expect(attributesFrom(text)).toEqual(attributes);
  });

  test('with a name that objects have by themselves is an attribute like any other', () => {
    const attributes = attributesFrom('__proto__=a,constructor=b');
    expect(Object.entries(attributes ?? {})).toEqual([
      ['__proto__', 'a'],
      ['constructor', 'b'],
    ]);
    expect(Object.getPrototypeOf({})).toBe(Object.prototype);
  });

  test('that is no list of attributes is said once, and none of it counts', () => {
    const warn = listenToDiag('warn');
    for (const text of ['pool', '=a', 'pool=a,', 'pool=a,region', 'pool=%', 'pool=%C3', ',']) {
      expect(configFrom({ METRIC_ATTRIBUTES: text })).toEqual({});
    }
    expect(warn).toHaveBeenCalledTimes(1);
    expect(warn).toHaveBeenCalledWith(
      `llama-stage-otel: ${PREFIX}METRIC_ATTRIBUTES must be a list of key=value; it is ignored`,
    );
  });
});

test('a logger that throws does not keep a worker from starting', () => {
  listenToDiag('warn').mockImplementation(() => {
    throw new Error('broken logger');
  });
  expect(configFrom({ ENABLED: 'perhaps' })).toEqual({});
});

describe('an instrumentation of the environment', () => {
  let instrumentation: VerifyWindowInstrumentation | undefined;

  afterEach(() => instrumentation?.disable());

  function start(variables: Readonly<Record<string, string>>) {
    instrumentation = new VerifyWindowInstrumentation(configFrom(variables));
    return generate();
  }

  test('counts, by default, all schedulers, and traces those that are below a span', async () => {
    const { collected, windows } = await start({});
    expect(collected.sum(OPENED)).toBe(6);
    expect(windows).toEqual([]);
  });

  test('counts with the attributes, and makes no more spans than it is told', async () => {
    const { collected, windows } = await start({
      REQUIRE_PARENT_SPAN: 'false',
      MAX_WINDOW_SPANS: '1',
      METRIC_ATTRIBUTES: 'pool=a',
    });
    expect(collected.sum(OPENED, { pool: 'a' })).toBe(6);
    expect(windows).toHaveLength(3);
  });

  test('may leave metrics out', async () => {
    const { collected, windows } = await start({
      REQUIRE_PARENT_SPAN: 'false',
      METRICS_ENABLED: 'false',
    });
    expect(collected.names).toEqual([]);
    expect(windows).toHaveLength(6);
  });

  test('may leave spans out', async () => {
    const { collected, windows } = await start({
      REQUIRE_PARENT_SPAN: 'false',
      SPANS_ENABLED: 'false',
    });
    expect(collected.sum(OPENED)).toBe(6);
    expect(windows).toEqual([]);
  });

  test('may be left out altogether', async () => {
    const { collected } = await start({ ENABLED: 'false' });
    expect(channel(SCHEDULER_CHANNEL).hasSubscribers).toBe(false);
    expect(collected.names).toEqual([]);
  });

  test('starts as it would by default where a value is wrong', async () => {
    const warn = listenToDiag('warn');
    const { collected } = await start({ ENABLED: 'perhaps', MAX_ATTRIBUTE_SETS: '0' });
    expect(collected.sum(OPENED)).toBe(6);
    expect(warn).toHaveBeenCalledTimes(2);
  });
});

// The last test of this file: what is registered stays for as long as the process.
test('register instruments the process by its environment', async () => {
  vi.stubEnv(`${PREFIX}REQUIRE_PARENT_SPAN`, 'false');
  vi.stubEnv(`${PREFIX}METRIC_ATTRIBUTES`, 'pool=b');
  await import('../src/register.js');
  const { collected, windows } = await generate();
  expect(collected.sum(OPENED, { pool: 'b' })).toBe(6);
  expect(windows).toHaveLength(6);
});
