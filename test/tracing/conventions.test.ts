import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SpanKind } from '@opentelemetry/api';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import {
  GenerationTelemetry,
  injectTraceContext,
  StageTelemetry,
  windowContext,
} from '../../src/index.js';
import { Tracing, useApi } from './sdk.js';

interface SpanGroup {
  readonly id: string;
  readonly span_kind: string;
  readonly events?: readonly string[];
  readonly attributes: readonly { readonly ref: string; readonly requirement_level: unknown }[];
}

const registry = join(import.meta.dirname, '../../semconv/registry/spans.yaml');
const { groups } = parse(readFileSync(registry, 'utf8')) as { groups: SpanGroup[] };
/** By name: the id of a group is the name of its span, between `span.` and its kind. */
const conventions = new Map(
  groups.map((group) => [group.id.slice('span.'.length, -`.${group.span_kind}`.length), group]),
);

useApi();

/** Generations that go well and that fail, in every way there is to retire a window. */
async function traceAll(): Promise<Tracing> {
  const tracing = new Tracing();
  const tracerProvider = tracing.provider;
  const generations = new GenerationTelemetry({ tracerProvider, maxWindowSpans: 4 });
  const stage = new StageTelemetry({
    tracerProvider,
    index: 1,
    id: 's',
    layerStart: 0,
    layerEnd: 9,
  });
  const models = { requestModel: 'a', responseModel: 'b' };
  await generations.run({ depth: 4, ...models }, ({ scheduler, tokensCommitted }) => {
    const window = scheduler.open(0, 0);
    scheduler.open(8, 0);
    scheduler.open(16, 0);
    stage.window(injectTraceContext(windowContext(scheduler, window)), (received) => {
      received.compute(() => {});
      received.forwardWrite(() => {});
      received.downstreamWait(() => {});
    });
    scheduler.completeNext(1, { proposedTokens: 8, acceptedTokens: 5 });
    tokensCommitted(6);
    scheduler.markRecoveryEpoch(2);
    scheduler.completeNext(2, { stale: true });
    scheduler.discardStale();
    scheduler.open(8, 6);
    // Past the limit of window spans.
    scheduler.open(16, 6);
  });
  const compact = new StageTelemetry({ tracerProvider, index: 2, phases: 'attributes' });
  await generations.run({ depth: 2 }, ({ scheduler }) => {
    const windows = [scheduler.open(0, 0), scheduler.open(8, 0)];
    for (const each of [stage, compact]) {
      const started = windows.map((window) =>
        each.startWindow(injectTraceContext(windowContext(scheduler, window))),
      );
      each.computeBatch(started, () => {});
      for (const window of started) {
        window.forwardWrite(() => {});
        window.downstreamWait(() => {});
        window.end();
      }
    }
  });
  const failing = generations.run({ depth: 4 }, ({ scheduler }) => {
    const carrier = injectTraceContext(windowContext(scheduler, scheduler.open(0, 0)));
    for (const phase of ['compute', 'forwardWrite', 'downstreamWait'] as const) {
      const fail = () => {
        throw new Error('failed');
      };
      expect(() => stage.window(carrier, (received) => received[phase](fail))).toThrow('failed');
    }
    scheduler.completeNext(2);
  });
  await expect(failing).rejects.toThrow('out of order');
  return tracing;
}

test('every span of the conventions is made, and no other', async () => {
  const tracing = await traceAll();
  const names = new Set(tracing.spans().map(({ name }) => name));
  expect([...names].toSorted()).toEqual([...conventions.keys()].toSorted());
});

test.each([...conventions])('%s has the kind that they give it', async (name, { span_kind }) => {
  const tracing = await traceAll();
  const kinds = new Set(tracing.spans(name).map(({ kind }) => SpanKind[kind]?.toLowerCase()));
  expect([...kinds]).toEqual([span_kind]);
});

test.each([...conventions])(
  '%s has each attribute that they list, and no other',
  async (name, group) => {
    const tracing = await traceAll();
    const seen = tracing.spans(name).map(({ attributes }) => Object.keys(attributes));
    const listed = group.attributes.map(({ ref }) => ref);
    expect([...new Set(seen.flat())].toSorted()).toEqual(listed.toSorted());
    const required = group.attributes.filter((entry) => entry.requirement_level === 'required');
    for (const keys of seen) {
      expect(keys).toEqual(expect.arrayContaining(required.map(({ ref }) => ref)));
    }
  },
);

test.each([...conventions])(
  '%s has the events that they list, and no other',
  async (name, group) => {
    const tracing = await traceAll();
    const events = tracing.spans(name).flatMap((span) => span.events.map((event) => event.name));
    expect([...new Set(events)].map((event) => `event.${event}`)).toEqual(group.events ?? []);
  },
);
