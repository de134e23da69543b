import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { PipelineTelemetry, StageTelemetry } from 'llama-stage-otel';
import * as v from 'valibot';
import { Admission, introduce, type Receiver } from './admission.js';
import { type Arguments, UsageError } from './arguments.js';
import { now } from './clock.js';
import { dial, FrameDecoder, writeFrame } from './framing.js';
import {
  type ForwardMessage,
  type Hello,
  NEIGHBOUR_GONE,
  type ReturnMessage,
  returnMessage,
  type StageControl,
  type StageReply,
  type StartStage,
  stageReply,
  type Window,
} from './messages.js';
import { Compute, DelayLine } from './simulated-time.js';
import { identifyStage } from './stage-identity.js';
import { SHUTDOWN_MS } from './telemetry.js';
import { Timeline } from './timeline.js';
import type { Verification, Verifier } from './verifier.js';

/**
 * How long the stage that really failed may take to be noticed, and a signal that was meant for the
 * whole run to reach the coordinator, too. Milliseconds.
 */
const GRACE_MS = 500;

/** A stage that does not answer for this long is stopped, or hangs. */
const PING_MS = 1000;

/** How long a stage may take to end when it is told to, in milliseconds; it is killed after that. */
const END_GRACE_MS = SHUTDOWN_MS + 1000;

/** The run cannot go on, and why. */
export class ChainFailure extends Error {}

/** A window that awaits its reply. */
interface Pending {
  readonly window: Window;
  readonly deadline: NodeJS.Timeout;
  resolve(reply: ReturnMessage): void;
  reject(error: Error): void;
}

/** A stage of its own process. */
interface StageProcess {
  readonly stage: number;
  readonly child: ChildProcess;
  metricsUrl?: string | undefined;
  /** Who waits for the next answer to a ping. */
  readonly waiting: Set<(cpuMs: number) => void>;
}

/**
 * The chain of stages as the coordinator sees it: stage 0 computes here, the others are processes
 * of their own. Windows go down in order, and the predictions come straight back from the last.
 */
export class Chain implements Verifier {
  readonly #args: Arguments;
  /** Handed to the stages over their IPC channels, and to nobody else. */
  readonly #secret = randomBytes(32).toString('hex');
  /** Aborted with the reason why the chain came to its end. */
  readonly #ended = new AbortController();
  /** Rejects with why the chain came to its end. */
  readonly failure = new Promise<never>((_, reject) => {
    const { signal } = this.#ended;
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  readonly #stage0: Compute;
  readonly #telemetry: StageTelemetry;
  /** Stages 1 and up, in this order; they start from the last to the first. */
  readonly #processes: StageProcess[] = [];
  readonly #sockets: Socket[] = [];
  /** Windows that await their replies, by generation, the oldest first. */
  readonly #pending = new Map<number, Pending[]>();
  readonly #returnLink: DelayLine<ReturnMessage>;
  #server: Server | undefined;
  #downstream: Socket | undefined;
  #timeline = new Timeline();
  #windowsVerified = 0;

  /** Nothing runs before `start`, and `close` is right at any moment, also while it starts. */
  constructor(args: Arguments, telemetry: PipelineTelemetry) {
    this.#args = args;
    this.failure.catch(() => {});
    this.#stage0 = new Compute(args.stageMs, this.#ended.signal);
    this.#telemetry = telemetry.stage(identifyStage(0, args.stages));
    this.#returnLink = new DelayLine(args.linkMs, (message) => this.#settle(message));
  }

  /**
   * Starts the processes, from the last stage to the first, and connects them.
   *
   * @throws {UsageError} where a stage cannot start as it is told to.
   * @throws {ChainFailure} where a stage ends, or does not start in time.
   */
  async start(): Promise<void> {
    const { stages, stageMs, linkMs, prometheusPort, telemetry } = this.#args;
    const reverseReturnPort = this.upstreamOpened ? undefined : await this.#listenForReturn();
    let nextPort: number | undefined;
    let lastPort: number | undefined;
    for (let stage = stages - 1; stage >= 1; stage--) {
      const isLast = stage === stages - 1;
      const port = await this.#startStage({
        type: 'start',
        stage,
        stages,
        stageMs,
        linkMs,
        hasTelemetry: telemetry === 'on',
        prometheusPort,
        secret: this.#secret,
        ...(nextPort !== undefined && { nextPort }),
        ...(isLast && reverseReturnPort !== undefined && { reverseReturnPort }),
      });
      lastPort ??= port;
      nextPort = port;
    }
    this.#downstream = await this.#dial(nextPort as number, 'upstream', 1);
    if (!this.upstreamOpened) return;
    const sink = await this.#dial(lastPort as number, 'prediction_sink', stages - 1);
    const decoder = new FrameDecoder();
    const { broken, receive } = this.#receiver();
    sink.on('data', (chunk) => {
      try {
        for (const message of decoder.push(chunk)) receive(message);
      } catch (error) {
        broken(error as Error);
      }
    });
  }

  get upstreamOpened(): boolean {
    return !this.#args.reverseReturn;
  }

  /** Ids of the processes of stages 1 and up. */
  get processIds(): number[] {
    return this.#processes.map(({ child }) => child.pid).filter((pid) => pid !== undefined);
  }

  /** Where these processes serve their metrics. */
  get metricsUrls(): string[] {
    return this.#processes
      .map(({ metricsUrl }) => metricsUrl)
      .filter((metricsUrl) => metricsUrl !== undefined);
  }

  /** How many windows were verified so far. */
  get windowsVerified(): number {
    return this.#windowsVerified;
  }

  /** Milliseconds of CPU that each process has used, the coordinator's first. */
  async cpuMs(): Promise<number[]> {
    const { system, user } = process.cpuUsage();
    const answers = await Promise.all(this.#processes.map((each) => this.#ping(each)));
    return [(system + user) / 1000, ...answers.map((cpuMs) => cpuMs ?? Number.NaN)];
  }

  begin(generation: number, prompt: readonly number[]): void {
    const message = { type: 'begin' as const, generation, prompt };
    const sent = this.#stage0.run(now()).then(() => this.#forward(message));
    // What stops it stops the windows that come after it as well.
    sent.catch(() => {});
  }

  end(generation: number): void {
    this.#forward({ type: 'end', generation }).catch(() => {});
  }

  /** @throws {ChainFailure} once a stage is gone, hangs, or sends what nobody asked for. */
  async verify(window: Window): Promise<Verification> {
    this.#ended.signal.throwIfAborted();
    const arrivedAt = now();
    const reply = this.#replyTo(window);
    return this.#telemetry.window(window.trace, async (observed) => {
      const compute = await this.#stage0.run(arrivedAt, (act) => observed.compute(act));
      const sentAt = now();
      const visits = [{ arrivedAt, compute, sentAt }];
      await observed.forwardWrite(() =>
        this.#forward({ ...window, trace: observed.carrier, visits }),
      );
      const writtenAt = now();
      const { windowId, predictions, visits: journey } = await observed.downstreamWait(() => reply);
      const repliedAt = now();
      this.#windowsVerified++;
      this.#timeline.add(journey, repliedAt);
      return {
        windowId,
        predictions,
        stage0ComputeMs: compute.to - compute.from,
        forwardWriteMs: writtenAt - sentAt,
        downstreamWaitMs: repliedAt - writtenAt,
        elapsedMs: repliedAt - arrivedAt,
      };
    });
  }

  /** The journeys of the windows that were answered since the last time. */
  takeTimeline(): Timeline {
    const timeline = this.#timeline;
    this.#timeline = new Timeline();
    return timeline;
  }

  /** Ends every process and connection. */
  close(): void {
    this.#end(new ChainFailure('the chain was closed'));
    this.#server?.close();
    for (const socket of this.#sockets) socket.destroy();
    for (const { child } of this.#processes) {
      tell(child, { type: 'stop' });
      setTimeout(() => child.kill('SIGKILL'), END_GRACE_MS).unref();
    }
  }

  async #forward(message: ForwardMessage): Promise<void> {
    try {
      await writeFrame(this.#downstream as Socket, message);
    } catch {
      // What a broken connection means is told by the stage's end, which names the stage.
      await this.failure;
    }
  }

  #replyTo(window: Window): Promise<ReturnMessage> {
    const { generation } = window;
    const reply = new Promise<ReturnMessage>((resolve, reject) => {
      const pending = this.#pending.get(generation) ?? [];
      this.#pending.set(generation, pending);
      const deadline = setTimeout(() => this.#explainSilence(window), this.#args.deadlineMs);
      pending.push({ window, deadline: deadline.unref(), resolve, reject });
    });
    // It is awaited once the window is sent; until then a failure is nobody's unhandled rejection.
    reply.catch(() => {});
    return reply;
  }

  /** A window has waited too long: a stage that does not answer is why. */
  async #explainSilence(window: Window): Promise<void> {
    const answers = await Promise.all(
      this.#processes.map(async (each) => ({ each, cpuMs: await this.#ping(each) })),
    );
    // It may have come meanwhile: this process may have been stopped for a while, too.
    const { generation, windowId } = window;
    const isPending = this.#pending.get(generation)?.some((other) => other.window === window);
    if (isPending !== true) return;
    const silent = answers.filter(({ cpuMs }) => cpuMs === undefined).map(({ each }) => each);
    const cause =
      silent.length === 0
        ? 'every stage answers, and none sent it on'
        : `${silent.map(nameOf).join(' and ')} ${silent.length === 1 ? 'does' : 'do'} not answer`;
    this.#end(
      new ChainFailure(
        `window ${windowId} of generation ${generation} had no reply within ${this.#args.deadlineMs} ms: ${cause}`,
      ),
    );
  }

  /** @returns the CPU time that the process tells; `undefined` where it does not answer. */
  async #ping(each: StageProcess): Promise<number | undefined> {
    const answer = new Promise<number>((resolve) => {
      each.waiting.add(resolve);
    });
    tell(each.child, { type: 'ping' });
    return Promise.race([answer, sleep(PING_MS, undefined, { ref: false })]);
  }

  /** A reply answers the oldest window of its generation. */
  #settle({ generation, ...reply }: ReturnMessage): void {
    const pending = this.#pending.get(generation) ?? [];
    const oldest = pending[0];
    if (oldest === undefined) {
      this.#end(new ChainFailure('the last stage replied to a window that nobody sent'));
      return;
    }
    const { tokens, windowId } = oldest.window;
    if (reply.windowId !== windowId || reply.predictions.length !== tokens.length) {
      this.#end(
        new ChainFailure(
          `the last stage replied to window ${reply.windowId} with ${reply.predictions.length} predictions, where window ${windowId} awaits ${tokens.length}`,
        ),
      );
      return;
    }
    pending.shift();
    if (pending.length === 0) this.#pending.delete(generation);
    clearTimeout(oldest.deadline);
    oldest.resolve({ generation, ...reply });
  }

  async #startStage(control: StartStage): Promise<number> {
    this.#ended.signal.throwIfAborted();
    const program = fileURLToPath(new URL('./stage.js', import.meta.url));
    const child = spawn(process.execPath, [program], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const started: StageProcess = { stage: control.stage, child, waiting: new Set() };
    this.#processes.unshift(started);
    child.on('error', (error) => this.#lose(started, error.message));
    child.on('exit', (code, signal) => {
      const reason = signal ?? `exit code ${code}`;
      // Its neighbour has failed, and is the one to be named once its own end is known; or it was
      // told to end before it could listen.
      const isSecondHand = code === NEIGHBOUR_GONE || (signal !== null && signal !== 'SIGKILL');
      if (isSecondHand) setTimeout(() => this.#lose(started, reason), GRACE_MS);
      else this.#lose(started, reason);
    });
    const reply = new Promise<StageReply>((resolve) => {
      child.on('message', (message) => {
        const told = v.parse(stageReply, message);
        if (told.type === 'ready' || told.type === 'unusable') resolve(told);
        else this.#hear(started, told);
      });
    });
    tell(child, control);
    const { deadlineMs } = this.#args;
    const deadline = setTimeout(() => {
      const reason = `did not start within ${deadlineMs} ms`;
      this.#end(new ChainFailure(`${nameOf(started)} ${reason}`));
    }, deadlineMs);
    const told = await Promise.race([reply, this.failure]).finally(() => clearTimeout(deadline));
    if (told.type === 'unusable') throw new UsageError(told.message);
    if (told.type !== 'ready') throw new Error(`unexpected answer ${told.type}`);
    started.metricsUrl = told.metricsUrl;
    return told.port;
  }

  #lose(lost: StageProcess, reason: string): void {
    this.#end(new ChainFailure(`${nameOf(lost)} ended in the middle of the run: ${reason}`));
  }

  #hear(from: StageProcess, told: StageReply): void {
    if (told.type === 'pong') {
      for (const answer of from.waiting) answer(told.cpuMs);
      from.waiting.clear();
    } else if (told.type === 'failed') {
      this.#end(new ChainFailure(`${nameOf(from)} failed: ${told.message}`));
    } else if (told.type === 'signalled') {
      // Where it was meant for the whole run, the coordinator's own end is told, and not this.
      const failure = new ChainFailure(`${nameOf(from)} was told to end by ${told.signal}`);
      setTimeout(() => this.#end(failure), GRACE_MS);
    }
  }

  async #dial(port: number, purpose: Hello['purpose'], stage: number): Promise<Socket> {
    try {
      const socket = this.#use(await dial(port));
      await introduce(socket, this.#secret, purpose, stage);
      return socket;
    } catch (error) {
      // As in `#forward`; but where all stages live on, this is all that is known.
      const reason = new ChainFailure(
        `stage ${stage} cannot be reached: ${(error as Error).message}`,
      );
      await Promise.race([this.failure, sleep(2 * GRACE_MS)]);
      throw reason;
    }
  }

  /** The reverse fallback: the last stage dials here. */
  async #listenForReturn(): Promise<number> {
    const admission = new Admission(this.#secret, 0);
    let isTaken = false;
    const server = createServer({ noDelay: true }, (socket) =>
      admission.consider(socket, (purpose) => {
        if (purpose !== 'prediction_return' || isTaken) return undefined;
        isTaken = true;
        this.#use(socket);
        return this.#receiver();
      }),
    );
    this.#server = server;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  }

  #receiver(): Receiver {
    return {
      receive: (message) => this.#returnLink.push(v.parse(returnMessage, message)),
      broken: (error) =>
        this.#end(new ChainFailure(`the last stage sent what cannot be read: ${error.message}`)),
    };
  }

  #use(socket: Socket): Socket {
    this.#sockets.push(socket);
    if (this.#ended.signal.aborted) socket.destroy();
    // Told by the stage's end, like a write that fails.
    socket.on('error', () => {});
    return socket;
  }

  /** Nothing goes down the chain from now on, and what is on its way is not waited for. */
  #end(reason: ChainFailure): void {
    if (this.#ended.signal.aborted) return;
    for (const { deadline, reject } of [...this.#pending.values()].flat()) {
      clearTimeout(deadline);
      reject(reason);
    }
    this.#pending.clear();
    this.#ended.abort(reason);
  }
}

function nameOf({ child, stage }: StageProcess): string {
  return `stage ${stage} (process ${child.pid})`;
}

/** A process that is gone, or about to be, is told nothing. */
function tell(child: ChildProcess, control: StageControl): void {
  if (child.connected) child.send(control, () => {});
}
