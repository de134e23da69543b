import fc from 'fast-check';
import { expect, test } from 'vitest';
import { encodeFrame, FrameDecoder, MAX_FRAME_BYTES } from '../../examples/pipeline/framing.js';

test('messages survive however the stream is cut', () => {
  fc.assert(
    fc.property(
      fc.array(fc.jsonValue()),
      fc.infiniteStream(fc.integer({ min: 1, max: 9 })),
      (messages, sizes) => {
        const stream = Buffer.concat(messages.map(encodeFrame));
        const decoder = new FrameDecoder();
        const decoded: unknown[] = [];
        for (let start = 0; start < stream.length; ) {
          const end = start + sizes.next().value;
          decoded.push(...decoder.push(stream.subarray(start, end)));
          start = end;
        }
        expect(decoded).toEqual(JSON.parse(JSON.stringify(messages)));
      },
    ),
  );
});

test('a frame that is too large is refused on both sides', () => {
  expect(() => encodeFrame('x'.repeat(MAX_FRAME_BYTES))).toThrow('a frame holds at most');
  const header = Buffer.alloc(4);
  header.writeUInt32BE(MAX_FRAME_BYTES + 1);
  expect(() => new FrameDecoder().push(header)).toThrow(`got ${MAX_FRAME_BYTES + 1}`);
});

test('a frame that is no JSON is refused', () => {
  const body = Buffer.from('{');
  const header = Buffer.alloc(4);
  header.writeUInt32BE(body.length);
  expect(() => new FrameDecoder().push(Buffer.concat([header, body]))).toThrow(SyntaxError);
});
