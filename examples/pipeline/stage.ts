/**
 * The program of a stage other than stage 0: computes each message in turn, passes it on, and on
 * the last stage returns the target's predictions to the coordinator.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { dial, encodeFrame, readFrames } from './framing.js';
import { LastStage } from './last-stage.js';
import {
  type ForwardMessage,
  type Hello,
  NEIGHBOUR_GONE,
  type StageControl,
  type StageReady,
} from './messages.js';
import { Compute, DelayLine } from './simulated-time.js';
import { Target } from './target.js';
import { readText } from './text.js';

// An interrupt from the terminal reaches every process; the coordinator decides when to stop.
process.on('SIGINT', () => {});
process.on('disconnect', () => process.exit(0));

const [control] = (await once(process, 'message')) as [StageControl];
const compute = new Compute(control.stageMs);
const downstream =
  control.nextPort === undefined ? undefined : await openDownstream(control.nextPort);
const lastStage = downstream === undefined ? new LastStage(new Target(readText())) : undefined;
let sink =
  control.reverseReturnPort === undefined ? undefined : await connectTo(control.reverseReturnPort);

const server = createServer({ noDelay: true }, accept);
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;
process.send?.({ type: 'ready', port } satisfies StageReady);

function accept(socket: Socket): void {
  stopWith(socket);
  let last: Promise<void> = Promise.resolve();
  const link = new DelayLine<ForwardMessage>(control.linkMs, (message, arrivedAt) => {
    last = last.then(() => work(message, arrivedAt));
  });
  readFrames(socket, (frame) => {
    const message = frame as ForwardMessage | Hello;
    if (message.type !== 'hello') link.push(message);
    else if (message.purpose === 'prediction_sink') sink = socket;
  });
}

async function work(message: ForwardMessage, arrivedAt: number): Promise<void> {
  if (message.type !== 'end') await compute.run(arrivedAt);
  downstream?.write(encodeFrame(message));
  const predictions = lastStage?.handle(message);
  if (predictions !== undefined) sink?.write(encodeFrame(predictions));
}

async function openDownstream(nextPort: number): Promise<Socket> {
  const socket = await connectTo(nextPort);
  socket.write(encodeFrame({ type: 'hello', purpose: 'upstream' } satisfies Hello));
  return socket;
}

async function connectTo(to: number): Promise<Socket> {
  const socket = await dial(to);
  stopWith(socket);
  return socket;
}

/** A stage is of no use once a neighbour is gone. */
function stopWith(socket: Socket): void {
  socket.on('error', () => process.exit(NEIGHBOUR_GONE));
  socket.on('close', () => process.exit(NEIGHBOUR_GONE));
}
