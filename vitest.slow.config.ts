import { defineConfig } from 'vitest/config';

/** What needs downloads or programs of its own: `npm run test:matrix` and `npm run test:e2e`. */
export default defineConfig({
  test: {
    include: ['test/{e2e,matrix}/*.slow.ts'],
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
});
