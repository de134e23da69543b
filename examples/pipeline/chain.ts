import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { Arguments } from './arguments.js';
import { dial, encodeFrame, readFrames } from './framing.js';
import {
  type ForwardMessage,
  type Hello,
  NEIGHBOUR_GONE,
  type Predictions,
  type StageControl,
  type StageReady,
  type WindowMessage,
} from './messages.js';
import { Compute, DelayLine } from './simulated-time.js';
import type { Verification, Verifier } from './verifier.js';

/** How long the stage that really failed may take to be noticed, in milliseconds. */
const NEIGHBOUR_GRACE_MS = 500;

/** How long a stage may take to end when it is told to, in milliseconds; it is killed after that. */
const END_GRACE_MS = 1000;

/** The run cannot go on, and why. */
export class ChainFailure extends Error {}

/** A reply, and when it came. */
interface Reply {
  readonly message: Predictions;
  readonly at: number;
}

interface Pending {
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

/**
 * The chain of stages as the coordinator sees it: stage 0 computes here, the others are processes
 * of their own. Windows go down in order, and the predictions come straight back from the last.
 */
export class Chain implements Verifier {
  readonly #args: Arguments;
  readonly #stage0: Compute;
  readonly #children: ChildProcess[] = [];
  readonly #sockets: Socket[] = [];
  /** Windows that await their replies, by generation, the oldest first. */
  readonly #pending = new Map<number, Pending[]>();
  readonly #returnLink: DelayLine<Predictions>;
  #server: Server | undefined;
  #downstream: Socket | undefined;
  #lastJob: Promise<void> = Promise.resolve();
  #failure: ChainFailure | undefined;
  #isClosing = false;

  /** Nothing runs before `start`, and `close` is right at any moment, also while it starts. */
  constructor(args: Arguments) {
    this.#args = args;
    this.#stage0 = new Compute(args.stageMs);
    this.#returnLink = new DelayLine(args.linkMs, (message) => this.#settle(message));
  }

  /** Starts the processes, from the last stage to the first, and connects them. */
  async start(): Promise<void> {
    const { stages, stageMs, linkMs } = this.#args;
    const reverseReturnPort = this.upstreamOpened ? undefined : await this.#listenForReturn();
    let nextPort: number | undefined;
    let lastPort: number | undefined;
    for (let stage = stages - 1; stage >= 1; stage--) {
      const isLast = stage === stages - 1;
      const port = await this.#startStage({
        type: 'start',
        stage,
        stageMs,
        linkMs,
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

  begin(generation: number, prompt: readonly number[]): void {
    this.#enqueue({ type: 'begin', generation, prompt });
  }

  end(generation: number): void {
    this.#enqueue({ type: 'end', generation });
  }

  /** @throws {ChainFailure} once a stage is gone, or sends what nobody asked for. */
  async verify(window: WindowMessage): Promise<Verification> {
    if (this.#failure !== undefined) throw this.#failure;
    const startedAt = performance.now();
    const reply = new Promise<Reply>((resolve, reject) => {
      const pending = this.#pending.get(window.generation) ?? [];
      this.#pending.set(window.generation, pending);
      pending.push({ resolve, reject });
    });
    const sent = this.#enqueue(window);
    const { message, at } = await reply;
    const { stage0ComputeMs, forwardWriteMs, writtenAt } = await sent;
    return {
      windowId: message.windowId,
      predictions: message.predictions,
      stage0ComputeMs,
      forwardWriteMs,
      downstreamWaitMs: at - writtenAt,
      elapsedMs: at - startedAt,
    };
  }

  /** Ends every process and connection. */
  close(): void {
    this.#isClosing = true;
    this.#server?.close();
    for (const socket of this.#sockets) socket.destroy();
    for (const child of this.#children) {
      child.kill();
      setTimeout(() => child.kill('SIGKILL'), END_GRACE_MS).unref();
    }
  }

  /** Computes stage 0 for a message, in its turn, and writes it to stage 1. */
  #enqueue(message: ForwardMessage) {
    const arrivedAt = performance.now();
    const job = this.#lastJob.then(async () => {
      const stage0ComputeMs = message.type === 'end' ? 0 : await this.#stage0.run(arrivedAt);
      const computedAt = performance.now();
      this.#downstream?.write(encodeFrame(message));
      const writtenAt = performance.now();
      return { stage0ComputeMs, forwardWriteMs: writtenAt - computedAt, writtenAt };
    });
    this.#lastJob = job.then(() => undefined);
    return job;
  }

  /** A reply goes to the oldest window of its generation; that it names it is checked there. */
  #settle(message: Predictions): void {
    const pending = this.#pending.get(message.generation) ?? [];
    const oldest = pending.shift();
    if (pending.length === 0) this.#pending.delete(message.generation);
    if (oldest !== undefined) oldest.resolve({ message, at: performance.now() });
    else this.#fail(new ChainFailure('the last stage replied to a window that nobody sent'));
  }

  async #startStage(control: StageControl): Promise<number> {
    if (this.#isClosing) throw new ChainFailure('the chain was closed while it started');
    const program = fileURLToPath(new URL('./stage.js', import.meta.url));
    const child = spawn(process.execPath, [program], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#children.push(child);
    const gone = new Promise<never>((_, reject) => {
      const fail = (reason: string) => {
        const failure = new ChainFailure(
          `stage ${control.stage} (process ${child.pid}) ended in the middle of the run: ${reason}`,
        );
        this.#fail(failure);
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
    const [ready] = (await Promise.race([once(child, 'message'), gone])) as [StageReady];
    return ready.port;
  }

  async #connect(firstPort: number, lastPort: number): Promise<void> {
    this.#downstream = this.#use(await dial(firstPort));
    this.#downstream.write(encodeFrame({ type: 'hello', purpose: 'upstream' } satisfies Hello));
    if (!this.upstreamOpened) return;
    const sink = this.#use(await dial(lastPort));
    sink.write(encodeFrame({ type: 'hello', purpose: 'prediction_sink' } satisfies Hello));
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
    readFrames(socket, (message) => this.#returnLink.push(message as Predictions));
  }

  #use(socket: Socket): Socket {
    this.#sockets.push(socket);
    if (this.#isClosing) socket.destroy();
    // What a broken connection means is told by the stage's end, which names the stage.
    socket.on('error', () => {});
    return socket;
  }

  #fail(failure: ChainFailure): void {
    if (this.#isClosing) return;
    this.#failure ??= failure;
    for (const { reject } of [...this.#pending.values()].flat()) reject(this.#failure);
    this.#pending.clear();
  }
}
