/** The parts of a Protobuf message under one field number; they share the message's memory. */
export function parts(message: Uint8Array, field: number): Uint8Array[] {
  const found: Uint8Array[] = [];
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = message[at++] as number;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = varint();
    const wireType = tag & 7;
    if (wireType === 0) varint();
    else if (wireType === 1) at += 8;
    else if (wireType === 5) at += 4;
    else {
      const length = varint();
      if (Math.floor(tag / 8) === field) found.push(message.subarray(at, at + length));
      at += length;
    }
  }
  return found;
}
