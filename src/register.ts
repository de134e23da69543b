/**
 * Instruments every scheduler of the process, for `node --import llama-stage-otel/register`. The
 * providers may be registered before or after.
 */
import { VerifyWindowInstrumentation } from './instrumentation.js';

new VerifyWindowInstrumentation();
