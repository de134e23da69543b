import { type Tracer, type TracerProvider, trace } from '@opentelemetry/api';
import { SCOPE_NAME, SCOPE_VERSION } from '../scope.js';

/**
 * Where the tracer comes from: a given provider, or the global one. It asks for the global one
 * again and again: a process may hold two copies of the API, one imported and one required, and a
 * tracer that one of them gave before an SDK was registered with the other never comes to life.
 */
export class TracerSource {
  #given: TracerProvider | undefined;
  #provider: TracerProvider | undefined;
  #tracer: Tracer | undefined;

  constructor(provider?: TracerProvider) {
    this.#given = provider;
  }

  /** Takes the tracer from this provider from now on. */
  setProvider(provider: TracerProvider): void {
    this.#given = provider;
  }

  get tracer(): Tracer {
    const provider = this.#given ?? trace.getTracerProvider();
    if (this.#tracer === undefined || provider !== this.#provider) {
      this.#provider = provider;
      this.#tracer = provider.getTracer(SCOPE_NAME, SCOPE_VERSION);
    }
    return this.#tracer;
  }
}
