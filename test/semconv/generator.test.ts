import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readRegistry } from '../../semconv/generator/read-registry.js';

/** A registry with one of everything, right in every respect. */
const GOOD = `
imports:
  metrics:
    - gen_ai.duration
groups:
  - id: registry.llama_stage.window
    type: attribute_group
    brief: A window.
    attributes:
      - id: llama_stage.window.id
        type: int
        stability: development
        brief: Its number.
        examples: [1]
      - id: llama_stage.window.verdict
        stability: development
        brief: Its fate.
        type:
          members:
            - id: kept
              value: kept
              stability: development
              brief: It was kept.
  - id: metric.llama_stage.window.duration
    type: metric
    metric_name: llama_stage.window.duration
    brief: How long it took.
    instrument: histogram
    unit: s
    attributes:
      - ref: error.type
        requirement_level:
          conditionally_required: If it failed.
        annotations:
          llama_stage:
            values:
              - value: closed
                brief: Too late.
    annotations:
      code_generation:
        metric_value_type: double
      llama_stage:
        asynchronous: false
        questions: [2]
        bucket_boundaries: [1, 2]
  - id: event.llama_stage.window.lost
    type: event
    name: llama_stage.window.lost
    brief: It was lost.
  - id: span.llama_stage.window.internal
    type: span
    span_kind: internal
    brief: A window.
    events: [event.llama_stage.window.lost]
    attributes:
      - ref: llama_stage.window.id
        requirement_level: required
`;

const UPSTREAM = `
attributes:
  - name: error.type
    type: string
    brief: Why it failed.
metrics:
  - name: gen_ai.duration
    instrument: histogram
    unit: s
    brief: How long it took.
    value_type: double
    bucket_boundaries: [1]
`;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'registry-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function read(registry: string) {
  const upstream = join(folder, 'upstream.yaml');
  const model = mkdtempSync(join(folder, 'model-'));
  writeFileSync(upstream, UPSTREAM);
  writeFileSync(join(model, 'model.yaml'), registry);
  return readRegistry(model, upstream);
}

describe('a good registry', () => {
  it('is read with its references followed', () => {
    const { attributes, metrics, spans } = read(GOOD);

    expect(attributes.map(({ name }) => name)).toEqual([
      'error.type',
      'llama_stage.window.id',
      'llama_stage.window.verdict',
    ]);
    expect(attributes[0]?.values).toEqual([{ value: 'closed', brief: 'Too late.' }]);
    expect(metrics.map(({ name, upstream }) => [name, upstream])).toEqual([
      ['gen_ai.duration', true],
      ['llama_stage.window.duration', false],
    ]);
    expect(metrics[1]?.attributes).toEqual([
      { name: 'error.type', level: 'conditionally required: If it failed.' },
    ]);
    expect(spans[0]?.events).toEqual(['llama_stage.window.lost']);
  });
});

describe('a bad registry', () => {
  const METRIC = 'model.yaml: metric.llama_stage.window.duration';
  const WINDOW = 'model.yaml: registry.llama_stage.window';

  it.each([
    [
      'a ref to nothing',
      'ref: llama_stage.window.id',
      'ref: llama_stage.window.ix',
      'model.yaml: span.llama_stage.window.internal: ref llama_stage.window.ix: no attribute of that name is defined',
    ],
    [
      'a ref without its level',
      'requirement_level: required',
      'note: None.',
      'model.yaml: span.llama_stage.window.internal: ref llama_stage.window.id: requirement_level is missing',
    ],
    [
      'an unknown level',
      'requirement_level: required',
      'requirement_level: needed',
      'ref llama_stage.window.id: requirement_level is needed, expected one of required, recommended, opt_in',
    ],
    [
      'an import of nothing',
      '- gen_ai.duration',
      '- gen_ai.length',
      'model.yaml: imports gen_ai.length, which upstream.yaml does not describe',
    ],
    [
      'an event that is not there',
      'events: [event.llama_stage.window.lost]',
      'events: [event.lost]',
      'there is no event event.lost',
    ],
    [
      'an attribute without a brief',
      'brief: Its number.',
      '',
      `${WINDOW}: attribute llama_stage.window.id: brief is missing`,
    ],
    [
      'a value without a brief',
      'brief: It was kept.',
      '',
      `${WINDOW}: attribute llama_stage.window.verdict: value kept: brief is missing`,
    ],
    ['a metric without a brief', 'brief: How long it took.', '', `${METRIC}: brief is missing`],
    [
      'an attribute without examples',
      'examples: [1]',
      '',
      `${WINDOW}: attribute llama_stage.window.id: examples are missing`,
    ],
    [
      'an unknown type',
      'type: int',
      'type: integer',
      'type is integer, expected one of string, int',
    ],
    [
      'an attribute defined twice',
      'id: llama_stage.window.verdict',
      'id: llama_stage.window.id',
      'llama_stage.window.id is defined twice',
    ],
    [
      'a group defined twice',
      'id: event.llama_stage.window.lost',
      'id: registry.llama_stage.window',
      'registry.llama_stage.window is defined twice',
    ],
    [
      'two names for one constant',
      'id: llama_stage.window.verdict',
      'id: llama_stage.window_id',
      'llama_stage.window.id and llama_stage.window_id make the same constant',
    ],
    [
      'a name with capitals',
      'id: llama_stage.window.verdict',
      'id: llama_stage.window.theVerdict',
      'llama_stage.window.theVerdict is no valid name',
    ],
    [
      "a definition of OpenTelemetry's",
      'id: llama_stage.window.verdict',
      'id: gen_ai.verdict',
      'gen_ai.verdict is outside llama_stage.*: refer to it, do not define it',
    ],
    [
      'an unknown group type',
      'type: event',
      'type: happening',
      'type is happening, expected one of attribute_group',
    ],
    [
      'an unknown instrument',
      'instrument: histogram',
      'instrument: meter',
      `${METRIC}: instrument is meter, expected one of counter`,
    ],
    [
      'a counter with buckets',
      'instrument: histogram',
      'instrument: counter',
      `${METRIC}: bucket_boundaries belong to a histogram, and to nothing else`,
    ],
    [
      'a histogram without buckets',
      'bucket_boundaries: [1, 2]',
      '',
      `${METRIC}: bucket_boundaries belong to a histogram, and to nothing else`,
    ],
    ['buckets out of order', '[1, 2]', '[2, 1]', `${METRIC}: bucket_boundaries do not rise`],
    [
      'an observable histogram',
      'asynchronous: false',
      'asynchronous: true',
      `${METRIC}: a histogram cannot be asynchronous`,
    ],
    [
      'a question that is none',
      'questions: [2]',
      'questions: [10]',
      `${METRIC}: questions are numbered from 1 to 9`,
    ],
    [
      'a span whose id says another kind',
      'span_kind: internal',
      'span_kind: client',
      'the id of a span of kind client must be span.{name}.client',
    ],
    [
      'an attribute defined on a signal',
      '      - ref: llama_stage.window.id',
      '      - id: llama_stage.window.id',
      'model.yaml: span.llama_stage.window.internal: attributes are defined in attribute groups, and referred to everywhere else',
    ],
    ['broken YAML', 'groups:', 'groups: [', 'model.yaml: '],
  ])('is rejected for %s', (_, good, bad, message) => {
    expect(GOOD).toContain(good);
    expect(() => read(GOOD.replace(good, bad))).toThrow(message);
  });
});
