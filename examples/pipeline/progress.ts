/** Shows on stderr how far a run is: one line that changes on a terminal, plain lines elsewhere. */
export class Progress {
  readonly #isTerminal = process.stderr.isTTY;

  step(what: string, done: number, total: number): void {
    const line = `${what}: ${done} of ${total} generations`;
    if (!this.#isTerminal) console.error(line);
    else process.stderr.write(`\r\x1b[K${line}${done === total ? '\n' : ''}`);
  }
}
