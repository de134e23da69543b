/** Name of the instrumentation scope under which this package emits. */
export const SCOPE_NAME = 'llama-stage-otel';

/** Version of the instrumentation scope: that of the package. */
export const SCOPE_VERSION = '0.1.0';
