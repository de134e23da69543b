import { createNoopMeter, type Meter, type MeterProvider, metrics } from '@opentelemetry/api';
import { SCOPE_NAME, SCOPE_VERSION } from '../scope.js';

/**
 * Where the meter comes from: a given one, a given provider, or the global provider. The metrics
 * API has no proxy for a provider that is registered late, so this asks again.
 */
export class MeterSource {
  readonly #given: Meter | undefined;
  #provider: MeterProvider | undefined;
  #current: Meter | undefined;
  #currentProvider: MeterProvider | undefined;

  constructor(meter?: Meter) {
    this.#given = meter;
  }

  /** Whether there is no real provider yet, so that one may come at any time. */
  get isWaiting(): boolean {
    return this.#given === undefined && this.#current === createNoopMeter();
  }

  /** Takes meters of this provider from now on; one that does nothing gives way to the global one. */
  setProvider(provider: MeterProvider): void {
    this.#provider = meterOf(provider) === createNoopMeter() ? undefined : provider;
  }

  /** The meter, where it is another than at the last call. */
  takeChange(): Meter | undefined {
    const meter = this.#find();
    if (meter === this.#current) return undefined;
    this.#current = meter;
    return meter;
  }

  #find(): Meter {
    if (this.#given !== undefined) return this.#given;
    const provider = this.#provider ?? metrics.getMeterProvider();
    if (provider === this.#currentProvider && this.#current !== undefined) return this.#current;
    this.#currentProvider = provider;
    return meterOf(provider);
  }
}

function meterOf(provider: MeterProvider): Meter {
  return provider.getMeter(SCOPE_NAME, SCOPE_VERSION);
}
