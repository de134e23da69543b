import { parseArgs } from 'node:util';

export interface Arguments {
  readonly depth: number;
  readonly stages: number;
  readonly tokens: number;
  readonly generations: number;
  readonly concurrency: number;
  readonly width: number;
  readonly stageMs: number;
  readonly linkMs: number;
  readonly reverseReturn: boolean;
  /** Whether the processes start an SDK: without one nothing is exported, and part of the table is empty. */
  readonly telemetry: 'on' | 'off';
  /** How long a stage may take to start, and a window to be answered, in milliseconds. */
  readonly deadlineMs: number;
  readonly prometheusPort: number;
  readonly hold: boolean;
  readonly json: boolean;
}

/** The command line cannot be used, and why. */
export class UsageError extends Error {}

interface NumberFlag {
  readonly default: number;
  readonly min: number;
  readonly max: number;
  readonly isInteger: boolean;
  readonly help: string;
}

const MAX_PORT = 65535;

const NUMBERS = {
  depth: flag(4, 1, 64, 'verify windows in flight for one generation; the control has 1'),
  stages: flag(
    4,
    2,
    16,
    'stages of the chain; stage 0 is in the coordinator, the others are processes',
  ),
  tokens: flag(160, 1, 4000, 'tokens of each generation'),
  generations: flag(8, 1, 1000, 'generations in each run'),
  concurrency: flag(2, 1, 64, 'generations at a time'),
  width: flag(4, 1, 64, 'candidate tokens in a window'),
  'stage-ms': flag(
    4,
    0,
    1000,
    'simulated compute of a stage for one window, in milliseconds',
    false,
  ),
  'link-ms': flag(6, 0, 1000, 'simulated delay of a link, one way, in milliseconds', false),
  'prometheus-port': flag(
    9464,
    0,
    MAX_PORT,
    "the coordinator's port for Prometheus; the stages take the next ones; 0 takes free ones",
  ),
} satisfies Record<string, NumberFlag>;

/** What its default follows from is not known before the other arguments are. */
const DEADLINE = flag(
  0,
  1,
  3_600_000,
  'stops the run if a stage takes longer to start or to answer',
);

const SWITCHES = {
  'reverse-return': 'the last stage opens the connection for its predictions',
  hold: 'keep all processes and their Prometheus endpoints up after the run, until interrupted',
  json: 'write the table as one JSON object to stdout, and nothing else',
  help: 'show this',
};

/** @returns the arguments, or `undefined` where the help was asked for. */
export function readArguments(argv: readonly string[]): Arguments | undefined {
  const values = parse(argv);
  if (values.help === true) return undefined;
  const number = (name: keyof typeof NUMBERS) => readNumber(name, values[name]);
  const prometheusPort = number('prometheus-port');
  const stages = number('stages');
  const telemetry = values.telemetry ?? 'on';
  if (telemetry !== 'on' && telemetry !== 'off') {
    throw new UsageError(`--telemetry must be on or off, got '${telemetry}'`);
  }
  if (prometheusPort + stages - 1 > MAX_PORT) {
    throw new UsageError(`--prometheus-port ${prometheusPort} leaves no port for the last stage`);
  }
  const load = {
    depth: number('depth'),
    stages,
    concurrency: number('concurrency'),
    stageMs: number('stage-ms'),
    linkMs: number('link-ms'),
  };
  const deadline = values['deadline-ms'];
  return {
    ...load,
    tokens: number('tokens'),
    generations: number('generations'),
    width: number('width'),
    prometheusPort,
    telemetry,
    deadlineMs:
      deadline === undefined ? defaultDeadlineMs(load) : checked('deadline-ms', DEADLINE, deadline),
    reverseReturn: values['reverse-return'] === true,
    hold: values.hold === true,
    json: values.json === true,
  };
}

type Load = Pick<Arguments, 'depth' | 'stages' | 'concurrency' | 'stageMs' | 'linkMs'>;

/** No honest run meets it: three times what a window takes that queues behind all others, and 10 s. */
function defaultDeadlineMs({ concurrency, depth, linkMs, stageMs, stages }: Load): number {
  const queue = concurrency * (depth + 1) * stageMs;
  return Math.ceil(10_000 + 3 * (queue + stages * stageMs + (stages + 1) * linkMs));
}

export function helpText(): string {
  const lines = [
    ...Object.entries(NUMBERS).map(
      ([name, { default: value, help }]) =>
        `  --${`${name} N`.padEnd(20)}${help} (default ${value})`,
    ),
    `  --${'deadline-ms N'.padEnd(20)}${DEADLINE.help} (default: what no honest run meets)`,
    `  --${'telemetry on|off'.padEnd(20)}whether the processes start an SDK (default on)`,
    ...Object.entries(SWITCHES).map(([name, help]) => `  --${name.padEnd(20)}${help}`),
  ];
  return [
    'Runs a pipeline of stages twice, serially and with verify windows in flight, and compares.',
    '',
    ...lines,
    '',
    'With OTEL_EXPORTER_OTLP_ENDPOINT set, every process exports traces and metrics over OTLP.',
  ].join('\n');
}

function flag(value: number, min: number, max: number, help: string, isInteger = true): NumberFlag {
  return { default: value, min, max, isInteger, help };
}

function parse(argv: readonly string[]): Record<string, string | boolean | undefined> {
  const options = Object.fromEntries([
    ...[...Object.keys(NUMBERS), 'deadline-ms', 'telemetry'].map((name) => [
      name,
      { type: 'string' as const },
    ]),
    ...Object.keys(SWITCHES).map((name) => [name, { type: 'boolean' as const }]),
  ]);
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: false }).values as never;
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function readNumber(name: keyof typeof NUMBERS, text: string | boolean | undefined): number {
  return text === undefined ? NUMBERS[name].default : checked(name, NUMBERS[name], text);
}

function checked(
  name: string,
  { isInteger, max, min }: NumberFlag,
  text: string | boolean,
): number {
  const number = typeof text === 'string' && text.trim() !== '' ? Number(text) : Number.NaN;
  if (!(number >= min && number <= max) || (isInteger && !Number.isInteger(number))) {
    throw new UsageError(
      `--${name} must be ${isInteger ? 'an integer' : 'a number'} from ${min} to ${max}, got '${text}'`,
    );
  }
  return number;
}
