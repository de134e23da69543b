import { join } from 'node:path';
import type { Registry } from './model.js';
import { readRegistry } from './read-registry.js';
import { HEADER } from './source-text.js';
import { writeAttributes, writeMetrics, writeSpans } from './write-constants.js';
import { writeCounted } from './write-counted.js';
import { writeFigures } from './write-figures.js';
import { writeInstruments } from './write-instruments.js';
import { writeReference } from './write-reference.js';

export function readConventions(semconvFolder: string): Registry {
  return readRegistry(join(semconvFolder, 'registry'), join(semconvFolder, 'upstream.yaml'));
}

/** Every generated file, by its path in the semconv folder. */
export function generate(registry: Registry): ReadonlyMap<string, string> {
  return new Map([
    ['attributes.ts', writeAttributes(registry)],
    ['metrics.ts', writeMetrics(registry)],
    ['spans.ts', writeSpans(registry)],
    ['instruments.ts', writeInstruments(registry)],
    ['figures.ts', writeFigures(registry)],
    ['counted.ts', writeCounted(registry)],
    ['index.ts', INDEX],
    ['reference.md', writeReference(registry)],
  ]);
}

/** Without the instruments and what they count: that is for this package's own bridge. */
const INDEX = `${HEADER}
export * from './attributes.js';
export * from './figures.js';
export * from './metrics.js';
export * from './spans.js';
`;
