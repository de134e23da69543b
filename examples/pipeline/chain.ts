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

/** How long the stage that really failed may take to be noticed, in milliseconds. */
const NEIGHBOUR_GRACE_MS = 500;

/** The run cannot go on, and why. */
export class ChainFailure extends Error {}

/** The answer to a window, and where its time went. Milliseconds. */
export interface Verification {
  readonly predictions: readonly number[];
  readonly stage0ComputeMs: number;
  readonly forwardWriteMs: number;
  readonly downstreamWaitMs: number;
  /** From handing the window over to its answer, queues included. */
  readonly elapsedMs: number;
}

interface Pending {
  resolve(answer: { readonly predictions: readonly number[]; readonly at: number }): void;
  reject(error: Error): void;
}

/**
 * The chain of stages as the coordinator sees it: stage 0 computes here, the others are processes
 * of their own. Windows go down in order, and the predictions come straight back from the last.
 */
export class Chain {
  readonly #stage0: Compute;
  readonly #upstreamOpened: boolean;
  readonly #children: ChildProcess[] = [];
  readonly #sockets: Socket[] = [];
  readonly #pending = new Map<string, Pending>();
  readonly #returnLink: DelayLine<Predictions>;
  #server: Server | undefined;
  #downstream: Socket | undefined;
  #lastJob: Promise<void> = Promise.resolve();
  #failure: ChainFailure | undefined;
  #isClosing = false;

  private constructor(args: Arguments) {
    this.#stage0 = new Compute(args.stageMs);
    this.#upstreamOpened = !args.reverseReturn;
    this.#returnLink = new DelayLine(args.linkMs, (message) => this.#settle(message));
  }

  /** Starts the processes, from the last stage to the first, and connects them. */
  static async start(args: Arguments): Promise<Chain> {
    const chain = new Chain(args);
    try {
      const reverseReturnPort = args.reverseReturn ? await chain.#listenForReturn() : undefined;
      let nextPort: number | undefined;
      let lastPort: number | undefined;
      for (let stage = args.stages - 1; stage >= 1; stage--) {
        const isLast = stage === args.stages - 1;
        const port = await chain.#startStage({
          type: 'start',
          stage,
          stageMs: args.stageMs,
          linkMs: args.linkMs,
          ...(nextPort !== undefined && { nextPort }),
          ...(isLast && reverseReturnPort !== undefined && { reverseReturnPort }),
        });
        lastPort ??= port;
        nextPort = port;
      }
      await chain.#connect(nextPort as number, lastPort as number);
      return chain;
    } catch (error) {
      chain.close();
      throw chain.#failure ?? error;
    }
  }

  /** Whether the predictions come over a sink that the coordinator opened. */
  get upstreamOpened(): boolean {
    return this.#upstreamOpened;
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

  /**
   * Sends a window down the chain.
   *
   * @throws {ChainFailure} once a stage is gone.
   */
  async verify(window: WindowMessage): Promise<Verification> {
    const startedAt = performance.now();
    const answer = new Promise<{ predictions: readonly number[]; at: number }>(
      (resolve, reject) => {
        if (this.#failure !== undefined) reject(this.#failure);
        this.#pending.set(keyOf(window), { resolve, reject });
      },
    );
    const sent = this.#enqueue(window);
    const { predictions, at } = await answer;
    const { stage0ComputeMs, forwardWriteMs, writtenAt } = await sent;
    return {
      predictions,
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
    for (const child of this.#children) child.kill();
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

  #settle({ generation, windowId, predictions }: Predictions): void {
    const key = keyOf({ generation, windowId });
    this.#pending.get(key)?.resolve({ predictions, at: performance.now() });
    this.#pending.delete(key);
  }

  async #startStage(control: StageControl): Promise<number> {
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
    if (!this.#upstreamOpened) return;
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
    // What a broken connection means is told by the stage's end, which names the stage.
    socket.on('error', () => {});
    return socket;
  }

  #fail(failure: ChainFailure): void {
    if (this.#isClosing) return;
    this.#failure ??= failure;
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
  }
}

function keyOf({ generation, windowId }: { generation: number; windowId: number }): string {
  return `${generation}:${windowId}`;
}
