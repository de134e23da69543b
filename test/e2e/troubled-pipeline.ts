import { setTimeout as sleep } from 'node:timers/promises';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import {
  injectTraceContext,
  PipelineTelemetry,
  type StageTelemetry,
  type VerifyWindow,
  type VerifyWindowScheduler,
  windowContext,
} from '../../src/index.js';

/** Candidates in each window, and windows that a generation has to verify. */
const WIDTH = 4;
const VERIFIED = 4;

/** What is wrong with a pipeline; what is not said is in order. */
export interface Trouble {
  readonly depth?: number;
  /** Compute of each stage for a window, in milliseconds. */
  readonly stageMs?: readonly number[];
  /** Candidates of each window that the target accepts. */
  readonly accepted?: number;
  /** Windows that the guess is long enough for, at most. */
  readonly supplied?: number;
  /** Tokens that each refill finds. */
  readonly refillTokens?: number;
  /** Time before the first window, and before each that finds nothing in flight. */
  readonly prefillMs?: number;
  readonly pauseMs?: number;
  /** Replies stop to come: those of one generation, or all after a while. */
  readonly loses?: 'one' | 'all';
  /** Stale windows are discarded at once, and their replies come late. */
  readonly discards?: boolean;
  readonly opensBeyondDepth?: boolean;
  readonly mixesReplies?: boolean;
  readonly reverseReturn?: boolean;
  readonly failsEachSecond?: boolean;
  readonly outputDiffers?: boolean;
  /** Its few generations have more attribute sets than are kept apart. */
  readonly overflows?: boolean;
}

interface InFlight {
  readonly window: VerifyWindow;
  readonly reply: Promise<void>;
}

/** After which replies are lost, in milliseconds: the rates have to know the pipeline by then. */
const HEALTHY_MS = 4000;

/**
 * A pipeline that decodes in real time until it is stopped, in this process, with a trouble. It
 * pushes its metrics every second as a deployment of its own, named by `service.namespace`.
 */
export class TroubledPipeline {
  readonly #trouble: Trouble;
  readonly #provider: MeterProvider;
  readonly #telemetry: PipelineTelemetry;
  readonly #stages: readonly Stage[];
  readonly #stopping = new AbortController();
  readonly #running: Promise<unknown>;
  readonly #startedAt = performance.now();

  constructor(endpoint: string, name: string, trouble: Trouble = {}) {
    this.#trouble = trouble;
    const exporter = new OTLPMetricExporter({ url: endpoint });
    this.#provider = new MeterProvider({
      resource: resourceFromAttributes({
        'service.namespace': name,
        'service.name': 'coordinator',
        'service.instance.id': name,
      }),
      readers: [
        new PeriodicExportingMetricReader({
          exporter,
          exportIntervalMillis: 1000,
          exportTimeoutMillis: 900,
        }),
      ],
    });
    this.#telemetry = new PipelineTelemetry({
      meterProvider: this.#provider,
      ...(trouble.overflows && { maxAttributeSets: 1 }),
    });
    const { stageMs = [15, 15] } = trouble;
    this.#stages = stageMs.map((ms, index) => new Stage(this.#telemetry.stage({ index }), ms));
    this.#running = Promise.all([this.#decode(false), trouble.loses && this.#decode(true)]);
  }

  /** Ends what it does, and reports no more. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    await this.#provider.shutdown();
  }

  async #decode(isTroubled: boolean): Promise<void> {
    const loses = this.#trouble.loses === 'all' || isTroubled;
    // Problems of the telemetry are those of the process: pipelines that are made later start at none.
    const last = this.#trouble.overflows ? 2 : Number.POSITIVE_INFINITY;
    for (let index = 0; index <= last && !this.#stopping.signal.aborted; index++) {
      // What fails here is what the trouble wants to fail, and leaves others their turn.
      await this.#generate(index, loses).catch(() => this.#sleep(1));
      if (this.#trouble.outputDiffers && index === 0) {
        this.#telemetry.recordControlComparison(false);
      }
    }
  }

  #generate(index: number, loses: boolean): Promise<void> {
    const { depth = 4, failsEachSecond, overflows, prefillMs = 0, reverseReturn } = this.#trouble;
    const options = { depth, ...(overflows && { metricAttributes: { tenant: index } }) };
    return this.#telemetry.generation(options).run(async ({ scheduler, tokensCommitted }) => {
      scheduler.markDirectPredictionReturn(!reverseReturn);
      await this.#sleep(prefillMs);
      const inFlight: InFlight[] = [];
      for (let verified = 0; verified < VERIFIED; verified++) {
        await this.#fill(scheduler, inFlight, loses);
        tokensCommitted(await this.#takeReply(scheduler, inFlight));
      }
      await this.#drain(scheduler, inFlight);
      if (failsEachSecond && index % 2 === 1) throw new Error('made up');
    });
  }

  async #fill(
    scheduler: VerifyWindowScheduler,
    inFlight: InFlight[],
    loses: boolean,
  ): Promise<void> {
    const { opensBeyondDepth, pauseMs, refillTokens = WIDTH, supplied } = this.#trouble;
    if (inFlight.length === 0 && pauseMs !== undefined) await this.#sleep(pauseMs);
    while (inFlight.length < (supplied ?? scheduler.depth)) {
      scheduler.recordHorizonRefill(refillTokens);
      const window = scheduler.open(0, 0);
      inFlight.push({ window, reply: this.#verify(scheduler, window, loses) });
    }
    if (opensBeyondDepth) refused(() => scheduler.open(0, 0));
  }

  /** @returns the tokens that it committed. */
  async #takeReply(scheduler: VerifyWindowScheduler, inFlight: InFlight[]): Promise<number> {
    const { accepted = WIDTH, mixesReplies } = this.#trouble;
    const { window, reply } = inFlight.shift() as InFlight;
    await reply;
    if (mixesReplies) refused(() => scheduler.completeNext(window.id + 1));
    scheduler.completeNext(window.id, { proposedTokens: WIDTH, acceptedTokens: accepted });
    if (accepted < WIDTH) await this.#drain(scheduler, inFlight);
    return accepted + 1;
  }

  /** What is in flight has become stale. */
  async #drain(scheduler: VerifyWindowScheduler, inFlight: InFlight[]): Promise<void> {
    if (inFlight.length === 0) return;
    scheduler.markRecoveryEpoch(inFlight.length);
    if (this.#trouble.discards) scheduler.discardStale();
    for (const { window, reply } of inFlight.splice(0)) {
      await reply;
      if (this.#trouble.discards) refused(() => scheduler.completeNext(window.id));
      else {
        scheduler.completeNext(window.id, { stale: true });
        scheduler.recordStaleDiscarded(1, 0);
      }
    }
  }

  /** The way of a window through all stages, and back. */
  async #verify(
    scheduler: VerifyWindowScheduler,
    window: VerifyWindow,
    loses: boolean,
  ): Promise<void> {
    const carrier = injectTraceContext(windowContext(scheduler, window));
    for (const stage of this.#stages) await stage.compute(carrier);
    const isLost = loses && performance.now() - this.#startedAt > HEALTHY_MS;
    if (isLost) await this.#sleep(1e9);
  }

  /** Ends with the pipeline, and in order. */
  async #sleep(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#stopping.signal, ref: false }).catch(() => {});
  }
}

/** Computes one window at a time. */
class Stage {
  readonly #telemetry: StageTelemetry;
  readonly #ms: number;
  #busy: Promise<unknown> = Promise.resolve();

  constructor(telemetry: StageTelemetry, ms: number) {
    this.#telemetry = telemetry;
    this.#ms = ms;
  }

  async compute(carrier: unknown): Promise<void> {
    const turn = this.#busy.then(() =>
      this.#telemetry.window(carrier, ({ compute }) => compute(() => sleep(this.#ms))),
    );
    this.#busy = turn;
    await turn;
  }
}

/** What the scheduler refuses changes nothing, and is counted. */
function refused(act: () => unknown): void {
  try {
    act();
  } catch {}
}
