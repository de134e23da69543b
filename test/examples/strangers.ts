import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { encodeFrame } from '../../examples/pipeline/framing.js';

/** What a process does that has no business with the run. */
export type Attack = (port: number) => Promise<void>;

const header = (bytes: number) => {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32BE(bytes);
  return buffer;
};

const HELLO = { type: 'hello', purpose: 'prediction_sink', proof: '' };
const PROOF = 'ab'.repeat(32);

/** Sends bytes, and stays until it is thrown out. */
function sends(...parts: readonly (Buffer | string)[]): Attack {
  return async (port) => {
    const socket = await dialed(port);
    for (const part of parts) socket.write(part);
    await thrownOut(socket);
  };
}

const frames = (...messages: readonly unknown[]) => sends(...messages.map(encodeFrame));

export const ATTACKS: Readonly<Record<string, Attack>> = {
  'connects and closes': async (port) => {
    (await dialed(port)).destroy();
  },
  'connects and resets': async (port) => {
    (await dialed(port)).resetAndDestroy();
  },
  'connects, and ends its side': async (port) => {
    const socket = await dialed(port);
    socket.end();
    await thrownOut(socket);
  },
  'says nothing': sends(),
  'sends half a header': sends(Buffer.from([0, 0])),
  'sends a byte at a time': async (port) => {
    const socket = await dialed(port);
    for (const byte of encodeFrame(HELLO)) {
      if (socket.destroyed) return;
      socket.write(Buffer.from([byte]));
      await sleep(20);
    }
    await thrownOut(socket);
  },
  'announces 4 GiB': sends(header(0xffff_ffff)),
  'announces a frame of 1 MiB': sends(header(1 << 20), Buffer.alloc(1 << 16)),
  'sends a megabyte of zeros': sends(Buffer.alloc(1 << 20)),
  'sends what is not JSON': sends(header(3), 'abc'),
  'sends an empty frame': sends(header(0)),
  'sends null': frames(null),
  'sends an array': frames([1, 2]),
  'sends a deep nest': sends(header(900), '['.repeat(450) + ']'.repeat(450)),
  'speaks HTTP': sends('GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'),
  'begins TLS': sends(Buffer.from('1603010200010001fc0303', 'hex')),
  'asks to be the sink without a proof': frames(HELLO),
  'asks to be the sink with a wrong proof': frames({ ...HELLO, proof: PROOF }),
  'asks to be the upstream with a wrong proof': frames({
    ...HELLO,
    purpose: 'upstream',
    proof: PROOF,
  }),
  'asks to return predictions with a wrong proof': frames({
    ...HELLO,
    purpose: 'prediction_return',
    proof: PROOF,
  }),
  'proves with an object': frames({ ...HELLO, proof: { length: 32 } }),
  'proves with what is not hexadecimal': frames({ ...HELLO, proof: 'zz'.repeat(32) }),
  'asks for another purpose': frames({ ...HELLO, purpose: '__proto__', proof: PROOF }),
  'begins a generation': frames({ type: 'begin', generation: 0, prompt: [1, 2, 3] }),
  'ends a generation': frames({ type: 'end', generation: 0 }),
  'sends a window': frames({
    type: 'window',
    generation: 0,
    windowId: 1,
    basePosition: 0,
    tokens: [1],
    trace: {},
    visits: [],
  }),
  'forges a reply': frames({
    type: 'predictions',
    generation: 0,
    windowId: 1,
    predictions: [1, 2, 3],
    visits: [],
  }),
  'says hello and forges a reply at once': frames(
    { ...HELLO, proof: PROOF },
    { type: 'predictions', generation: 0, windowId: 1, predictions: [], visits: [] },
  ),
  'opens a hundred connections': async (port) => {
    const sockets = await Promise.all(Array.from({ length: 100 }, () => dialed(port)));
    await Promise.all(sockets.map(thrownOut));
  },
};

async function dialed(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' });
  socket.on('error', () => {});
  // Nobody reads what a port may answer, but its end is only seen by who reads.
  socket.resume();
  await new Promise((resolve) => socket.once('connect', resolve).once('close', resolve));
  return socket;
}

async function thrownOut(socket: Socket): Promise<void> {
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
}
