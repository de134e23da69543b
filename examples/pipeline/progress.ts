/** Shows on stderr how far a run is: one line that changes on a terminal, plain lines elsewhere. */
export class Progress {
  readonly #isTerminal = process.stderr.isTTY;
  #isMidLine = false;

  step(what: string, done: number, total: number): void {
    const line = `${what}: ${done} of ${total} generations`;
    if (!this.#isTerminal) {
      console.error(line);
      return;
    }
    this.#isMidLine = done < total;
    process.stderr.write(`\r\x1b[K${line}${this.#isMidLine ? '' : '\n'}`);
  }

  /** Whatever is said next begins on a line of its own. */
  interrupt(): void {
    if (this.#isMidLine) process.stderr.write('\n');
    this.#isMidLine = false;
  }
}
