import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** Larger frames are a fault of the peer: the longest prompt stays far below. */
export const MAX_FRAME_BYTES = 1 << 20;

const HEADER_BYTES = 4;

/** A message as a frame: its length in bytes, 32 bits big-endian, and then its JSON. */
export function encodeFrame(message: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  if (body.length > MAX_FRAME_BYTES) {
    throw new RangeError(`a frame holds at most ${MAX_FRAME_BYTES} bytes, got ${body.length}`);
  }
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(body.length);
  return Buffer.concat([header, body]);
}

/** Cuts a byte stream back into messages, however the network split or joined it. */
export class FrameDecoder {
  /** How large a frame may be; it may change from one to the next. */
  maxBytes: number;
  #pending = Buffer.alloc(0);

  constructor(maxBytes = MAX_FRAME_BYTES) {
    this.maxBytes = maxBytes;
  }

  /**
   * Takes bytes, and gives the messages that are whole by now.
   *
   * @throws {RangeError} for a frame that is too large; {SyntaxError} for one that is not JSON.
   */
  push(chunk: Buffer): unknown[] {
    const messages: unknown[] = [];
    this.add(chunk);
    for (let message = this.next(); message !== undefined; message = this.next()) {
      messages.push(message);
    }
    return messages;
  }

  add(chunk: Buffer): void {
    this.#pending = Buffer.concat([this.#pending, chunk]);
  }

  /** The next message that is whole; `undefined` where there is none yet. Throws as `push` does. */
  next(): unknown {
    if (this.#pending.length < HEADER_BYTES) return undefined;
    const length = this.#pending.readUInt32BE();
    if (length > this.maxBytes) {
      throw new RangeError(`a frame holds at most ${this.maxBytes} bytes, got ${length}`);
    }
    const end = HEADER_BYTES + length;
    if (this.#pending.length < end) return undefined;
    const message: unknown = JSON.parse(this.#pending.toString('utf8', HEADER_BYTES, end));
    this.#pending = this.#pending.subarray(end);
    return message;
  }
}

/** Writes a message; done once the connection has taken all of it. */
export function writeFrame(socket: Socket, message: unknown): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(encodeFrame(message), (error) => (error ? reject(error) : resolve()));
  });
}

/** Opens a connection on this machine. */
export async function dial(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  await once(socket, 'connect');
  return socket;
}
