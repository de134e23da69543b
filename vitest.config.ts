import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Tests of forgotten schedulers collect garbage themselves.
    execArgv: ['--expose-gc'],
  },
});
