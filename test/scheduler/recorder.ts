import type { VerifyWindowObserver, VerifyWindowScheduler } from '../../src/index.js';
import type { Event } from './model.js';

/** An observer that writes down what it is told. */
export class Recorder implements VerifyWindowObserver {
  readonly events: Event[] = [];
  readonly failures: unknown[] = [];
  /** Windows in flight and whether it was closed, as the scheduler showed it at each event. */
  readonly shown: { readonly inFlight: number; readonly isClosed: boolean }[] = [];
  readonly schedulers = new Set<VerifyWindowScheduler>();

  opened = this.#record('opened');
  completed = this.#record('completed');
  dropped = this.#record('dropped');
  recoveryEpoch = this.#record('recoveryEpoch');
  refused = this.#record('refused');
  closed = this.#record('closed');

  failed(error: unknown): void {
    this.failures.push(error);
  }

  #record(kind: Event[0]) {
    return (scheduler: VerifyWindowScheduler, ...details: unknown[]): void => {
      const { inFlight, isClosed } = scheduler;
      this.schedulers.add(scheduler);
      this.shown.push({ inFlight, isClosed });
      this.events.push([kind, ...details] as unknown as Event);
    };
  }
}
