import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Tests of forgotten schedulers collect garbage themselves.
    execArgv: ['--expose-gc'],
    // The file is for CI, which counts the tests from it.
    reporters: ['default', ['json', { outputFile: 'build/test-results.json' }]],
  },
});
