/**
 * The program of a stage other than stage 0: computes each message in turn, passes it on, and on
 * the last stage returns the target's predictions to the coordinator.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PipelineTelemetry } from 'llama-stage-otel';
import * as v from 'valibot';
import { Admission, introduce, type Receiver } from './admission.js';
import { UsageError } from './arguments.js';
import { now } from './clock.js';
import { dial, writeFrame } from './framing.js';
import { LastStage } from './last-stage.js';
import {
  type ForwardMessage,
  forwardMessage,
  type Hello,
  NEIGHBOUR_GONE,
  type ReturnMessage,
  type StageReply,
  type StartStage,
  stageControl,
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

// Whoever reads it may be gone.
process.stderr.on('error', () => {});
// A signal from the terminal reaches every process of the run; the coordinator decides what it means.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const) {
  process.on(signal, () => tell({ type: 'signalled', signal }));
}
process.on('disconnect', () => stop(0));

const control = await started();
const identity = identifyStage(control.stage, control.stages);
telemetry = control.hasTelemetry ? await startTelemetry() : undefined;

const observed = new PipelineTelemetry().stage(identity);
const compute = new Compute(control.stageMs, stopping.signal);
const downstream =
  control.nextPort === undefined
    ? undefined
    : await connectTo(control.nextPort, 'upstream', control.stage + 1);
const lastStage = downstream === undefined ? new LastStage(new Target(readText())) : undefined;
let sink =
  control.reverseReturnPort === undefined
    ? undefined
    : await connectTo(control.reverseReturnPort, 'prediction_return', 0);
let upstream: Socket | undefined;

const admission = new Admission(control.secret, control.stage);
const server = createServer({ noDelay: true }, (socket) =>
  admission.consider(socket, (purpose) => admit(socket, purpose)),
);
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;
tell({ type: 'ready', port, metricsUrl: telemetry?.metricsUrl });

/** The coordinator's first message says what to be; the later ones ask, or tell it to stop. */
async function started(): Promise<StartStage> {
  return new Promise((resolve) => {
    process.on('message', (message) => {
      const told = v.parse(stageControl, message);
      if (told.type === 'start') resolve(told);
      else if (told.type === 'stop') stop(0);
      else tell({ type: 'pong', cpuMs: cpuMs() });
    });
  });
}

function cpuMs(): number {
  const { system, user } = process.cpuUsage();
  return (system + user) / 1000;
}

/** One upstream, and one sink on the last stage: there is no second of either. */
function admit(socket: Socket, purpose: Hello['purpose']): Receiver | undefined {
  if (purpose === 'upstream' && upstream === undefined) {
    upstream = socket;
    stopWith(socket);
    return { receive: receiver(), broken: fail };
  }
  if (purpose === 'prediction_sink' && lastStage !== undefined && sink === undefined) {
    sink = socket;
    stopWith(socket);
    const receive = () => fail(new Error('the coordinator sent a message over its sink'));
    return { receive, broken: fail };
  }
  return undefined;
}

/** Takes what comes down the chain, after the delay of the link. */
function receiver(): (message: unknown) => void {
  const link = new DelayLine<ForwardMessage>(control.linkMs, (message, arrivedAt) => {
    work(message, arrivedAt).catch(fail);
  });
  return (message) => link.push(v.parse(forwardMessage, message));
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

async function write(socket: Socket, message: ForwardMessage | ReturnMessage): Promise<void> {
  try {
    await writeFrame(socket, message);
  } catch (error) {
    stop(NEIGHBOUR_GONE);
    throw error;
  }
}

async function connectTo(
  toPort: number,
  purpose: Hello['purpose'],
  stage: number,
): Promise<Socket> {
  try {
    const socket = await dial(toPort);
    stopWith(socket);
    await introduce(socket, control.secret, purpose, stage);
    return socket;
  } catch {
    stop(NEIGHBOUR_GONE);
    return new Promise<never>(() => {});
  }
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

/** Says why it cannot go on; the coordinator then stops the whole chain. */
function fail(error: Error): void {
  if (stopping.signal.aborted) return;
  tell({ type: 'failed', message: error.message });
}

function tell(reply: StageReply): void {
  // The coordinator may be gone: then this process is about to end, too.
  process.send?.(reply, () => {});
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
