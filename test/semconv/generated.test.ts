import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Meter, metrics } from '@opentelemetry/api';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { COUNTED } from '../../semconv/counted.js';
import { generate, readConventions } from '../../semconv/generator/generate.js';
import * as conventions from '../../semconv/index.js';
import * as instruments from '../../semconv/instruments.js';

const SEMCONV = join(import.meta.dirname, '../../semconv');
const registry = readConventions(SEMCONV);

describe('generated files', () => {
  it.each([...generate(registry)])('%s is what the registry yields', (path, text) => {
    expect(readFileSync(join(SEMCONV, path), 'utf8')).toBe(text);
  });

  it('names everything that the registry defines, once for each signal', () => {
    const exported = (prefix: string) =>
      Object.entries(conventions)
        .filter(([constant]) => constant.startsWith(prefix))
        .map(([, name]) => name)
        .sort();
    const defined = (named: readonly { readonly name: string }[]) =>
      named.map(({ name }) => name).sort();

    expect(exported('ATTR_')).toEqual(defined(registry.attributes));
    expect(exported('METRIC_')).toEqual(defined(registry.metrics));
    expect(exported('SPAN_')).toEqual(defined(registry.spans));
    expect(exported('EVENT_')).toEqual(defined(registry.events));
    for (const prefix of ['ATTR_', 'METRIC_', 'SPAN_', 'EVENT_']) {
      expect(new Set(exported(prefix)).size).toBe(exported(prefix).length);
    }
  });

  it('declares each constant once', () => {
    const declared = [...generate(registry).values()]
      .flatMap((text) => [...text.matchAll(/^export const (\w+)/gm)])
      .map(([, constant]) => constant);
    expect(new Set(declared).size).toBe(declared.length);
  });

  it('spells a constant as OpenTelemetry spells its own', () => {
    expect(conventions).toMatchObject({
      ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID: 'llama_stage.verify_window.id',
      ATTR_ERROR_TYPE: 'error.type',
      LLAMA_STAGE_VERIFY_WINDOW_VERDICT_VALUE_FULL_ACCEPT: 'full_accept',
      ERROR_TYPE_VALUE_DEPTH_EXCEEDED: 'depth_exceeded',
      METRIC_LLAMA_STAGE_VERIFY_WINDOW_OPENED: 'llama_stage.verify_window.opened',
      SPAN_LLAMA_STAGE_STAGE_COMPUTE: 'llama_stage.stage.compute',
      EVENT_LLAMA_STAGE_VERIFY_WINDOW_RECOVERY_EPOCH: 'llama_stage.verify_window.recovery_epoch',
    });
  });
});

describe('the values of an attribute', () => {
  it('are there in the order of the registry', () => {
    expect(conventions.LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON_VALUES).toEqual(['stale', 'closed']);
    expect(conventions.ERROR_TYPE_VALUES).toHaveLength(7);
  });
});

describe('figures', () => {
  it('has one for each attribute that sums up a generation', () => {
    const prefix = 'registry.llama_stage.verify_window.';
    const yaml = parse(readFileSync(join(SEMCONV, 'registry/generation-attributes.yaml'), 'utf8'));
    for (const group of ['pipeline', 'summary']) {
      const { attributes } = yaml.groups.find(({ id }: { id: string }) => id === prefix + group);
      const figures = conventions.FIGURES.filter((figure) => figure.group === group);
      expect(figures.map(({ attribute }) => attribute).sort()).toEqual(
        attributes.map(({ id }: { id: string }) => id).sort(),
      );
    }
  });

  it('tells which ones earlier workers do not know', () => {
    const later = conventions.FIGURES.filter(({ introducedWith }) => introducedWith);
    expect(later.map(({ introducedWith, timing }) => [introducedWith, timing])).toEqual([
      ['direct_return', 'verify_window_direct_prediction_return_upstream_opened'],
      ['direct_return', 'verify_window_direct_prediction_return_reverse_fallback'],
      ['horizon_refill', 'verify_window_horizon_refill_attempts'],
      ['horizon_refill', 'verify_window_horizon_refill_successes'],
      ['horizon_refill', 'verify_window_horizon_refill_tokens'],
      ['horizon_refill', 'verify_window_horizon_refill_misses'],
    ]);
  });
});

describe('what is counted', () => {
  it('is every asynchronous metric but those that no field of the counts holds', () => {
    const counted = new Set(COUNTED.map(({ instrument }) => instrument.name));
    const others = registry.metrics.filter(
      ({ name, asynchronous }) => asynchronous && !counted.has(name),
    );
    expect(others.map(({ name }) => name)).toEqual([
      conventions.METRIC_LLAMA_STAGE_GENERATION_CONTROL_COMPARISONS,
      conventions.METRIC_LLAMA_STAGE_GENERATION_COUNT,
      conventions.METRIC_LLAMA_STAGE_GENERATION_OUTPUT_TOKENS,
      conventions.METRIC_LLAMA_STAGE_TELEMETRY_PROBLEMS,
      conventions.METRIC_LLAMA_STAGE_VERIFY_WINDOW_FULL_TIME,
      conventions.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OCCUPANCY_TIME,
      conventions.METRIC_LLAMA_STAGE_VERIFY_WINDOW_OLDEST_AGE,
      conventions.METRIC_LLAMA_STAGE_VERIFY_WINDOW_PARALLEL_TIME,
      conventions.METRIC_LLAMA_STAGE_VERIFY_WINDOW_WINDOW_TIME,
    ]);
  });
});

describe('instruments', () => {
  const meter: Meter = metrics.getMeter('test');

  it('has one for each metric', () => {
    const names = Object.values(instruments).map(({ name }) => name);
    expect(names.sort()).toEqual(registry.metrics.map(({ name }) => name).sort());
  });

  it('fits the API', () => {
    const { INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_OPENED: opened } = instruments;
    const { INSTRUMENT_LLAMA_STAGE_VERIFY_WINDOW_DURATION: duration } = instruments;
    meter.createObservableCounter(opened.name, opened.options);
    meter.createHistogram(duration.name, duration.options);
    expect(duration.options.advice.explicitBucketBoundaries).toContain(0.0005);
  });
});
