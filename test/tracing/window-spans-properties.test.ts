import { context, trace } from '@opentelemetry/api';
import type { ReadableSpan, SpanProcessor } from '@opentelemetry/sdk-trace-base';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED,
  ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT,
} from '../../semconv/attributes.js';
import { SPAN_LLAMA_STAGE_VERIFY_WINDOW } from '../../semconv/spans.js';
import { VerifyWindowScheduler, VerifyWindowTracer } from '../../src/index.js';
import { type Operation, operations, perform } from '../scheduler/operations.js';
import { Recorder } from '../scheduler/recorder.js';
import { isParent, listenToDiag, nanoseconds, Tracing, useApi } from './sdk.js';

useApi();

/** One generation: a scheduler below a span of its own, and what an observer wrote down of it. */
class Generation {
  readonly recorder = new Recorder();
  readonly span;
  readonly #scheduler: VerifyWindowScheduler;
  readonly #operations: Operation[];
  readonly #clock = { ms: 0 };

  constructor(tracing: Tracing, tracer: VerifyWindowTracer, depth: number, calls: Operation[]) {
    this.span = tracing.tracer.startSpan('generation');
    this.#scheduler = new VerifyWindowScheduler({ depth, clock: () => this.#clock.ms });
    this.#operations = calls;
    this.#scheduler.subscribe(this.recorder);
    tracer.observe(this.#scheduler, trace.setSpan(context.active(), this.span));
  }

  get isDone(): boolean {
    return this.#operations.length === 0;
  }

  step(): void {
    const operation = this.#operations.shift();
    if (operation === undefined) return;
    if (operation.name === 'clock') this.#clock.ms += operation.stepMs;
    const { opened, inFlight } = this.#scheduler.tally;
    try {
      perform(this.#scheduler, operation, opened - inFlight + 1);
    } catch {
      // A refused call; that it changes nothing is tested elsewhere.
    }
  }

  end(): void {
    this.#scheduler.close();
    this.span.end();
  }

  /** Each retired window's id, with the verdict or the reason that it left with. */
  retired(): (string | number)[][] {
    return this.recorder.events.flatMap((event) =>
      event[0] === 'completed' || event[0] === 'dropped' ? [[event[1].id, event[2]]] : [],
    );
  }
}

class Counter implements SpanProcessor {
  started = 0;
  readonly ended = new Set<string>();

  onStart(): void {
    this.started++;
  }

  onEnd(span: ReadableSpan): void {
    this.ended.add(span.spanContext().spanId);
  }

  async forceFlush(): Promise<void> {}
  async shutdown(): Promise<void> {}
}

const generations = fc.array(
  fc.record({ depth: fc.integer({ min: 1, max: 6 }), calls: operations() }),
  {
    minLength: 1,
    maxLength: 6,
  },
);

test('whatever happens in whatever order, each window has one span, in its own generation', () => {
  fc.assert(
    fc.property(generations, fc.infiniteStream(fc.nat()), (specs, order) => {
      // The SDK logs an error where a span is ended twice.
      const error = listenToDiag();
      const counter = new Counter();
      const tracing = new Tracing({ processors: [counter] });
      const tracer = new VerifyWindowTracer({ tracerProvider: tracing.provider });
      const all = specs.map(
        ({ depth, calls }) => new Generation(tracing, tracer, depth, [...calls]),
      );

      for (let live = all; live.length > 0; live = live.filter(({ isDone }) => !isDone)) {
        live[order.next().value % live.length]?.step();
      }
      const retired = all.flatMap((generation) => generation.retired());
      expect(tracing.spans(SPAN_LLAMA_STAGE_VERIFY_WINDOW)).toHaveLength(retired.length);
      for (const generation of all) generation.end();

      const spans = tracing.spans(SPAN_LLAMA_STAGE_VERIFY_WINDOW);
      const parents = tracing.spans('generation');
      all.forEach((generation, index) => {
        const parent = parents[index] as ReadableSpan;
        const children = spans.filter((span) => isParent(parent, span));
        expect(
          children.map(({ attributes }) => [
            attributes[ATTR_LLAMA_STAGE_VERIFY_WINDOW_ID],
            attributes[ATTR_LLAMA_STAGE_VERIFY_WINDOW_VERDICT] ??
              attributes[ATTR_LLAMA_STAGE_VERIFY_WINDOW_DROP_REASON],
          ]),
        ).toEqual(generation.retired());
        expect(
          parent.events.map(({ attributes }) => [
            'recoveryEpoch',
            attributes?.[ATTR_LLAMA_STAGE_VERIFY_WINDOW_STALE_MARKED],
          ]),
        ).toEqual(generation.recorder.events.filter(([kind]) => kind === 'recoveryEpoch'));
      });
      const opened = all.flatMap(({ recorder }) =>
        recorder.events.filter(([kind]) => kind === 'opened'),
      );
      expect(spans).toHaveLength(opened.length);
      expect(counter.started).toBe(opened.length + all.length);
      expect(counter.ended.size).toBe(counter.started);
      for (const { startTime, endTime } of spans) {
        expect(nanoseconds(endTime)).toBeGreaterThanOrEqual(nanoseconds(startTime));
      }
      expect(error).not.toHaveBeenCalled();
    }),
  );
});
