import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { SCOPE_VERSION } from '../../src/guard.js';

it('the instrumentation scope has the version of the package', () => {
  const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
  expect(SCOPE_VERSION).toBe(manifest.version);
});
