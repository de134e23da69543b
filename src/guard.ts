import { reportOnce } from './diag.js';

/** Telemetry that runs within the host's own calls: where it fails, the host does not. */
export class Guard {
  readonly report: (error: unknown) => void;

  constructor(what: string) {
    this.report = reportOnce(what);
  }

  /** What `act` returns; nothing where it throws, which is reported once. */
  run<Result>(act: () => Result): Result | undefined {
    try {
      return act();
    } catch (error) {
      this.report(error);
      return undefined;
    }
  }
}
