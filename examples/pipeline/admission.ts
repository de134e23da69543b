/**
 * Who may speak. Every process of the machine can connect to a port, so the first message of a
 * connection proves that it belongs to this run; what comes from anybody else is dropped, and stops
 * nothing.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Socket } from 'node:net';
import * as v from 'valibot';
import { FrameDecoder, MAX_FRAME_BYTES, writeFrame } from './framing.js';
import { type Hello, hello } from './messages.js';

type Purpose = Hello['purpose'];

/** A stranger has this long to prove that it is none, in milliseconds. */
const PROOF_MS = 1000;

/** A hello takes some hundred bytes. */
const MAX_HELLO_BYTES = 1024;

/** As many strangers may be waiting; then the one that has waited longest is dropped. */
const MAX_STRANGERS = 64;

/** Introduces a connection that was opened from here. */
export function introduce(
  socket: Socket,
  secret: string,
  purpose: Purpose,
  stage: number,
): Promise<void> {
  const proof = proofOf(secret, purpose, stage).toString('hex');
  return writeFrame(socket, { type: 'hello', purpose, proof } satisfies Hello);
}

/** Handles what comes on a connection; its errors and its end are whoever's who took it. */
export interface Receiver {
  receive(message: unknown): void;
  /** The stream is broken: too large a frame, or one that is not JSON. */
  broken(error: Error): void;
}

/** The door of one process. */
export class Admission {
  readonly #secret: string;
  readonly #stage: number;
  readonly #strangers = new Set<Socket>();

  /** @param stage whose door it is. */
  constructor(secret: string, stage: number) {
    this.#secret = secret;
    this.#stage = stage;
  }

  /**
   * Waits for a connection to prove itself.
   *
   * @param admit takes the connection for its purpose; `undefined` where that is not wanted, or taken.
   */
  consider(socket: Socket, admit: (purpose: Purpose) => Receiver | undefined): void {
    const decoder = new FrameDecoder(MAX_HELLO_BYTES);
    let receiver: Receiver | undefined;
    socket.on('error', () => {});
    this.#strangers.add(socket);
    for (const oldest of this.#strangers) {
      if (this.#strangers.size <= MAX_STRANGERS) break;
      this.#strangers.delete(oldest);
      oldest.destroy();
    }
    const timer = setTimeout(() => socket.destroy(), PROOF_MS);
    socket.on('close', () => {
      clearTimeout(timer);
      this.#strangers.delete(socket);
    });
    const enter = (first: unknown) => {
      receiver = this.#isProof(first) ? admit(first.purpose) : undefined;
      if (receiver === undefined) {
        socket.destroy();
        return;
      }
      clearTimeout(timer);
      this.#strangers.delete(socket);
      decoder.maxBytes = MAX_FRAME_BYTES;
    };
    socket.on('data', (chunk) => {
      if (socket.destroyed) return;
      try {
        decoder.add(chunk);
        for (let next = decoder.next(); next !== undefined; next = decoder.next()) {
          if (receiver === undefined) enter(next);
          else receiver.receive(next);
          if (socket.destroyed) return;
        }
      } catch (error) {
        socket.destroy();
        receiver?.broken(error as Error);
      }
    });
  }

  #isProof(message: unknown): message is Hello {
    if (!v.is(hello, message)) return false;
    const expected = proofOf(this.#secret, message.purpose, this.#stage);
    const given = Buffer.from(message.proof, 'hex');
    return given.length === expected.length && timingSafeEqual(given, expected);
  }
}

/** The secret itself never travels, and a proof opens one door for one purpose. */
function proofOf(secret: string, purpose: Purpose, stage: number): Buffer {
  return createHmac('sha256', secret).update(`${purpose} ${stage}`).digest();
}
