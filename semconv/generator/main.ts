import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { generate, readConventions } from './generate.js';

/** Where npm runs its scripts, the package's root, has this folder. */
const SEMCONV = 'semconv';

for (const [path, text] of generate(readConventions(SEMCONV))) {
  writeFileSync(join(SEMCONV, path), text);
}
