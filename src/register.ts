/**
 * Instruments every scheduler of the process, for `node --import llama-stage-otel/register`. The
 * providers may be registered before or after. Options come from the environment: see
 * {@link configFromEnvironment}.
 */
import { configFromEnvironment, VerifyWindowInstrumentation } from './instrumentation.js';

new VerifyWindowInstrumentation(configFromEnvironment(process.env));
