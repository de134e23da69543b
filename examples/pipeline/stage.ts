/**
 * The program of a stage other than stage 0: computes each message in turn, passes it on, and on
 * the last stage returns the target's predictions to the coordinator.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PipelineTelemetry } from 'llama-stage-otel';
import { UsageError } from './arguments.js';
import { now } from './clock.js';
import { dial, readFrames, writeFrame } from './framing.js';
import { LastStage } from './last-stage.js';
import {
  type ForwardMessage,
  type Hello,
  NEIGHBOUR_GONE,
  type ReturnMessage,
  type StageControl,
  type StageReply,
  type Travelled,
  type Window,
} from './messages.js';
import { Compute, DelayLine } from './simulated-time.js';
import { identifyStage } from './stage-identity.js';
import { Target } from './target.js';
import { Telemetry } from './telemetry.js';
import { readText } from './text.js';

const stopping = new AbortController();
let telemetry: Telemetry | undefined;

// An interrupt from the terminal reaches every process; the coordinator decides when to stop.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => stop(0));
process.on('disconnect', () => stop(0));

const [control] = (await once(process, 'message')) as [StageControl];
const identity = identifyStage(control.stage, control.stages);
telemetry = await startTelemetry();

const observed = new PipelineTelemetry().stage(identity);
const compute = new Compute(control.stageMs, stopping.signal);
const downstream =
  control.nextPort === undefined ? undefined : await openDownstream(control.nextPort);
const lastStage = downstream === undefined ? new LastStage(new Target(readText())) : undefined;
let sink =
  control.reverseReturnPort === undefined ? undefined : await connectTo(control.reverseReturnPort);

const server = createServer({ noDelay: true }, accept);
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;
tell({ type: 'ready', port, metricsUrl: telemetry.metricsUrl });

function accept(socket: Socket): void {
  stopWith(socket);
  const link = new DelayLine<ForwardMessage>(control.linkMs, (message, arrivedAt) => {
    work(message, arrivedAt).catch((error) => {
      if (!stopping.signal.aborted) throw error;
    });
  });
  readFrames(socket, (frame) => {
    const message = frame as ForwardMessage | Hello;
    if (message.type !== 'hello') link.push(message);
    else if (message.purpose === 'prediction_sink') sink = socket;
  });
}

async function work(message: ForwardMessage, dueAt: number): Promise<void> {
  if (message.type === 'window') return verify(message, dueAt);
  if (message.type === 'begin') await compute.run(dueAt);
  lastStage?.handle(message);
  await forward(message);
}

async function verify(message: Window & Travelled, dueAt: number): Promise<void> {
  const arrivedAt = now();
  await observed.window(message.trace, async (window) => {
    const computed = await compute.run(dueAt, (act) => window.compute(act));
    const predictions = lastStage?.handle(message);
    const visits = [...message.visits, { arrivedAt, compute: computed, sentAt: now() }];
    // The last stage writes to no next one, and answers to the coordinator alone.
    if (predictions !== undefined) await answer({ ...predictions, visits });
    else await window.forwardWrite(() => forward({ ...message, trace: window.carrier, visits }));
  });
}

async function forward(message: ForwardMessage): Promise<void> {
  if (downstream !== undefined) await write(downstream, message);
}

async function answer(message: ReturnMessage): Promise<void> {
  if (sink !== undefined) await write(sink, message);
}

async function write(socket: Socket, message: ForwardMessage | ReturnMessage | Hello) {
  try {
    await writeFrame(socket, message);
  } catch (error) {
    stop(NEIGHBOUR_GONE);
    throw error;
  }
}

async function openDownstream(nextPort: number): Promise<Socket> {
  const socket = await connectTo(nextPort);
  await write(socket, { type: 'hello', purpose: 'upstream' });
  return socket;
}

async function connectTo(to: number): Promise<Socket> {
  const socket = await dial(to);
  stopWith(socket);
  return socket;
}

/** A stage is of no use once a neighbour is gone. */
function stopWith(socket: Socket): void {
  socket.on('error', () => stop(NEIGHBOUR_GONE));
  socket.on('close', () => stop(NEIGHBOUR_GONE));
}

async function startTelemetry(): Promise<Telemetry> {
  try {
    return await Telemetry.start({ stage: identity, prometheusPort: control.prometheusPort });
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    tell({ type: 'unusable', message: error.message });
    // The coordinator stops the whole chain now.
    return new Promise<never>(() => {});
  }
}

function tell(reply: StageReply): void {
  process.send?.(reply);
}

/** Ends the process once its telemetry is out. */
async function stop(exitCode: number): Promise<void> {
  if (stopping.signal.aborted) return;
  stopping.abort();
  // By the next turn the windows that this stopped have ended their spans.
  await nextTurn();
  await telemetry?.shutdown();
  process.exit(exitCode);
}
