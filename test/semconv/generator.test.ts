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
      - ref: llama_stage.loss.any
        requirement_level: recommended
      - ref: llama_stage.loss.count
        requirement_level: recommended
  - id: registry.llama_stage.loss.summary
    type: attribute_group
    brief: What was lost.
    attributes:
      - id: llama_stage.loss.count
        type: int
        stability: development
        brief: How many were lost.
        examples: [3]
        annotations:
          llama_stage:
            figure: { statistic: lostCount, timing: lost_count, kind: count, derived: true }
      - id: llama_stage.loss.any
        type: boolean
        stability: development
        brief: Whether one was lost.
        annotations:
          llama_stage:
            figure:
              statistic: anyLost
              timing: any_lost
              kind: boolean
              part_of: any_trouble
              introduced_with: losses
  - id: metric.llama_stage.loss.time
    type: metric
    metric_name: llama_stage.loss.time
    brief: The time that was lost.
    note: Only once.
    instrument: counter
    unit: s
    attributes:
      - ref: error.type
        requirement_level: required
    annotations:
      code_generation:
        metric_value_type: double
      llama_stage:
        asynchronous: true
        count: lostMs
  - id: attributes.llama_stage.loss
    type: attribute_group
    brief: Says besides what was lost.
    attributes:
      - ref: llama_stage.loss.count
        requirement_level: opt_in
    annotations:
      llama_stage:
        carried_by: [gen_ai.duration]
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
      'llama_stage.loss.any',
      'llama_stage.loss.count',
      'llama_stage.window.id',
      'llama_stage.window.verdict',
    ]);
    expect(attributes[0]?.values).toEqual([{ value: 'closed', brief: 'Too late.' }]);
    expect(metrics.map(({ name, upstream }) => [name, upstream])).toEqual([
      ['gen_ai.duration', true],
      ['llama_stage.loss.time', false],
      ['llama_stage.window.duration', false],
    ]);
    expect(metrics[2]?.attributes).toEqual([
      { name: 'error.type', level: 'conditionally required: If it failed.' },
    ]);
    expect(spans[0]?.events).toEqual(['llama_stage.window.lost']);
  });

  it('adds its own attributes to a metric that it imports', () => {
    const [imported] = read(GOOD).metrics;
    expect(imported?.attributes).toEqual([{ name: 'llama_stage.loss.count', level: 'opt_in' }]);
  });

  it('has its figures in the order in which a span refers to them', () => {
    const { figures } = read(GOOD);
    expect(figures).toMatchObject([
      {
        attribute: { name: 'llama_stage.loss.any' },
        group: 'summary',
        statistic: 'anyLost',
        timing: 'any_lost',
        kind: 'boolean',
        derived: false,
        partOf: 'any_trouble',
        introducedWith: 'losses',
      },
      {
        attribute: { name: 'llama_stage.loss.count' },
        group: 'summary',
        statistic: 'lostCount',
        timing: 'lost_count',
        kind: 'count',
        derived: true,
        partOf: '',
        introducedWith: '',
      },
    ]);
  });

  it('says which of the counts a metric reads', () => {
    const [, time, duration] = read(GOOD).metrics;
    expect(time?.count).toMatchObject({
      field: 'lostMs',
      attribute: { name: 'error.type' },
      isMs: true,
    });
    expect(duration?.count).toBeUndefined();
    const one = GOOD.replace('count: lostMs', 'count: 1');
    expect(read(one).metrics[1]?.count).toMatchObject({ field: 1, isMs: false });
  });
});

describe('a bad registry', () => {
  const METRIC = 'model.yaml: metric.llama_stage.window.duration';
  const WINDOW = 'model.yaml: registry.llama_stage.window';
  const LOSS = 'model.yaml: registry.llama_stage.loss.summary: figure of llama_stage.loss';
  const LOSS_TIME = 'model.yaml: metric.llama_stage.loss.time';

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
    [
      'a figure without a statistic',
      'statistic: lostCount, ',
      '',
      `${LOSS}.count: statistic is missing`,
    ],
    [
      'a statistic that is no field',
      'statistic: lostCount',
      'statistic: lost_count',
      `${LOSS}.count: lost_count is no name of a field`,
    ],
    [
      'a timing with capitals',
      'timing: lost_count',
      'timing: lostCount',
      `${LOSS}.count: lostCount is no name of a response timing`,
    ],
    [
      'an unknown kind of figure',
      'kind: count',
      'kind: number',
      `${LOSS}.count: kind is number, expected one of count, ms, fraction`,
    ],
    [
      'a figure of another type',
      'kind: count',
      'kind: ms',
      `${LOSS}.count: kind is ms, which takes the type double and not int`,
    ],
    [
      'a figure that is somewhat derived',
      'derived: true',
      'derived: partly',
      `${LOSS}.count: derived is not true or false`,
    ],
    [
      'a count that is part of a flag',
      'derived: true',
      'part_of: any_trouble',
      `${LOSS}.count: part_of belongs to a boolean`,
    ],
    [
      'a statistic of two figures',
      'statistic: anyLost',
      'statistic: lostCount',
      `${LOSS}.any: lostCount is defined twice`,
    ],
    [
      'a timing of two figures',
      'timing: any_lost',
      'timing: lost_count',
      `${LOSS}.any: lost_count is defined twice`,
    ],
    [
      'a figure that is part of another',
      'part_of: any_trouble',
      'part_of: lost_count',
      'figure of llama_stage.loss.any: part_of is the timing of a figure',
    ],
    [
      'a figure on no span',
      '- ref: llama_stage.loss.any',
      '- ref: error.type',
      'figure of llama_stage.loss.any: no span refers to its attribute',
    ],
    [
      'a count that is no field',
      'count: lostMs',
      'count: lost.ms',
      `${LOSS_TIME}: lost.ms is no name of a field`,
    ],
    [
      'a count of several',
      'count: lostMs',
      'count: 2',
      `${LOSS_TIME}: count is neither the name of a field nor 1`,
    ],
    [
      'a count that is no duration',
      'count: lostMs',
      'count: lost',
      `${LOSS_TIME}: count is lost and unit s: what ends in Ms goes with s`,
    ],
    [
      'a count of a histogram',
      'asynchronous: false',
      'asynchronous: false\n        count: lost',
      `${METRIC}: count belongs to an asynchronous metric`,
    ],
    [
      'a count by values that are not known',
      '- ref: error.type\n        requirement_level: required',
      '- ref: llama_stage.window.id\n        requirement_level: required',
      `${LOSS_TIME}: count goes with one required attribute whose values are known, or with none`,
    ],
    [
      'an addition to a metric that is not imported',
      'carried_by: [gen_ai.duration]',
      'carried_by: [gen_ai.length]',
      'model.yaml: attributes.llama_stage.loss: carried_by has gen_ai.length, which is not imported',
    ],
    ['broken YAML', 'groups:', 'groups: [', 'model.yaml: '],
  ])('is rejected for %s', (_, good, bad, message) => {
    expect(GOOD).toContain(good);
    expect(() => read(GOOD.replace(good, bad))).toThrow(message);
  });
});
