import { vi } from 'vitest';

/**
 * Another copy of the package in this process, as a bundle or a dependency of a dependency brings
 * one along. It shares the API of OpenTelemetry, and nothing else but what goes by way of symbols.
 */
export async function newCopy() {
  vi.resetModules();
  const library = await import('../src/index.js');
  const { VerifyWindowInstrumentation } = await import('../src/instrumentation.js');
  return { ...library, VerifyWindowInstrumentation };
}
