import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { PipelineTelemetry, StageTelemetry } from 'llama-stage-otel';
import { type Arguments, UsageError } from './arguments.js';
import { now } from './clock.js';
import { dial, readFrames, writeFrame } from './framing.js';
import {
  type ForwardMessage,
  type Hello,
  NEIGHBOUR_GONE,
  type ReturnMessage,
  type StageControl,
  type StageReply,
  type Window,
} from './messages.js';
import { Compute, DelayLine } from './simulated-time.js';
import { identifyStage } from './stage-identity.js';
import { SHUTDOWN_MS } from './telemetry.js';
import { Timeline } from './timeline.js';
import type { Verification, Verifier } from './verifier.js';

/** How long the stage that really failed may take to be noticed, in milliseconds. */
const NEIGHBOUR_GRACE_MS = 500;

/** How long a stage may take to end when it is told to, in milliseconds; it is killed after that. */
const END_GRACE_MS = SHUTDOWN_MS + 1000;

/** The run cannot go on, and why. */
export class ChainFailure extends Error {}

interface Pending {
  resolve(reply: ReturnMessage): void;
  reject(error: Error): void;
}

/**
 * The chain of stages as the coordinator sees it: stage 0 computes here, the others are processes
 * of their own. Windows go down in order, and the predictions come straight back from the last.
 */
export class Chain implements Verifier {
  readonly #args: Arguments;
  /** Aborted with the reason why the chain came to its end. */
  readonly #ended = new AbortController();
  readonly #failure = new Promise<never>((_, reject) => {
    const { signal } = this.#ended;
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  readonly #stage0: Compute;
  readonly #telemetry: StageTelemetry;
  /** Of stages 1 and up, in this order; they start from the last to the first. */
  readonly #children: ChildProcess[] = [];
  readonly #metricsUrls: string[] = [];
  readonly #sockets: Socket[] = [];
  /** Windows that await their replies, by generation, the oldest first. */
  readonly #pending = new Map<number, Pending[]>();
  readonly #returnLink: DelayLine<ReturnMessage>;
  #server: Server | undefined;
  #downstream: Socket | undefined;
  #timeline = new Timeline();

  /** Nothing runs before `start`, and `close` is right at any moment, also while it starts. */
  constructor(args: Arguments, telemetry: PipelineTelemetry) {
    this.#args = args;
    this.#failure.catch(() => {});
    this.#stage0 = new Compute(args.stageMs, this.#ended.signal);
    this.#telemetry = telemetry.stage(identifyStage(0, args.stages));
    this.#returnLink = new DelayLine(args.linkMs, (message) => this.#settle(message));
  }

  /**
   * Starts the processes, from the last stage to the first, and connects them.
   *
   * @throws {UsageError} where a stage cannot start as it is told to.
   */
  async start(): Promise<void> {
    const { stages, stageMs, linkMs, prometheusPort } = this.#args;
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
        prometheusPort,
        ...(nextPort !== undefined && { nextPort }),
        ...(isLast && reverseReturnPort !== undefined && { reverseReturnPort }),
      });
      lastPort ??= port;
      nextPort = port;
    }
    await this.#connect(nextPort as number, lastPort as number);
  }

  get upstreamOpened(): boolean {
    return !this.#args.reverseReturn;
  }

  /** Ids of the processes of stages 1 and up. */
  get processIds(): number[] {
    return this.#children.map((child) => child.pid).filter((pid) => pid !== undefined);
  }

  /** Where these processes serve their metrics. */
  get metricsUrls(): readonly string[] {
    return this.#metricsUrls;
  }

  begin(generation: number, prompt: readonly number[]): void {
    const message = { type: 'begin', generation, prompt } as const;
    const sent = this.#stage0.run(now()).then(() => this.#forward(message));
    // What stops it stops the windows that come after it as well.
    sent.catch(() => {});
  }

  end(generation: number): void {
    this.#forward({ type: 'end', generation }).catch(() => {});
  }

  /** @throws {ChainFailure} once a stage is gone, or sends what nobody asked for. */
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
    for (const child of this.#children) {
      child.kill();
      setTimeout(() => child.kill('SIGKILL'), END_GRACE_MS).unref();
    }
  }

  async #forward(message: ForwardMessage): Promise<void> {
    await this.#write(this.#downstream as Socket, message);
  }

  async #write(socket: Socket, message: ForwardMessage | Hello): Promise<void> {
    try {
      await writeFrame(socket, message);
    } catch {
      // What a broken connection means is told by the stage's end, which names the stage.
      await this.#failure;
    }
  }

  #replyTo({ generation }: Window): Promise<ReturnMessage> {
    const reply = new Promise<ReturnMessage>((resolve, reject) => {
      const pending = this.#pending.get(generation) ?? [];
      this.#pending.set(generation, pending);
      pending.push({ resolve, reject });
    });
    // It is awaited once the window is sent; until then a failure is nobody's unhandled rejection.
    reply.catch(() => {});
    return reply;
  }

  /** A reply goes to the oldest window of its generation; that it names it is checked there. */
  #settle(message: ReturnMessage): void {
    const pending = this.#pending.get(message.generation) ?? [];
    const oldest = pending.shift();
    if (pending.length === 0) this.#pending.delete(message.generation);
    if (oldest !== undefined) oldest.resolve(message);
    else this.#end(new ChainFailure('the last stage replied to a window that nobody sent'));
  }

  async #startStage(control: StageControl): Promise<number> {
    this.#ended.signal.throwIfAborted();
    const program = fileURLToPath(new URL('./stage.js', import.meta.url));
    const child = spawn(process.execPath, [program], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#children.unshift(child);
    const gone = new Promise<never>((_, reject) => {
      const fail = (reason: string) => {
        const failure = new ChainFailure(
          `stage ${control.stage} (process ${child.pid}) ended in the middle of the run: ${reason}`,
        );
        this.#end(failure);
        reject(failure);
      };
      child.on('error', (error) => fail(error.message));
      child.on('exit', (code, signal) => {
        const reason = signal ?? `exit code ${code}`;
        // Its neighbour has failed, and is the one to be named once its own end is known.
        if (code === NEIGHBOUR_GONE) setTimeout(fail, NEIGHBOUR_GRACE_MS, reason).unref();
        else fail(reason);
      });
    });
    gone.catch(() => {});
    child.send(control);
    const [reply] = (await Promise.race([once(child, 'message'), gone])) as [StageReply];
    if (reply.type === 'unusable') throw new UsageError(reply.message);
    this.#metricsUrls.unshift(reply.metricsUrl);
    return reply.port;
  }

  async #connect(firstPort: number, lastPort: number): Promise<void> {
    this.#downstream = this.#use(await dial(firstPort));
    await this.#write(this.#downstream, { type: 'hello', purpose: 'upstream' });
    if (!this.upstreamOpened) return;
    const sink = this.#use(await dial(lastPort));
    await this.#write(sink, { type: 'hello', purpose: 'prediction_sink' });
    this.#receiveFrom(sink);
  }

  /** The reverse fallback: the last stage dials here. */
  async #listenForReturn(): Promise<number> {
    const server = createServer({ noDelay: true }, (socket) =>
      this.#receiveFrom(this.#use(socket)),
    );
    this.#server = server;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  }

  #receiveFrom(socket: Socket): void {
    readFrames(socket, (message) => this.#returnLink.push(message as ReturnMessage));
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
    for (const { reject } of [...this.#pending.values()].flat()) reject(reason);
    this.#pending.clear();
    this.#ended.abort(reason);
  }
}
