import { readdirSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { describe, expect, it } from 'vitest';
import { filesIn, importsOf, ROOT } from './packed.js';

/** Every module that a source imports, by way of others too: paths of ours, names of packages. */
function reachableFrom(path: string, seen = new Set<string>()): Set<string> {
  for (const specifier of importsOf(path)) {
    if (!specifier.startsWith('.')) {
      seen.add(specifier);
      continue;
    }
    const source = resolve(path, '..', specifier).replace(/\.js$/, '.ts');
    const module = relative(ROOT, source).replaceAll(sep, '/');
    if (seen.has(module)) continue;
    seen.add(module);
    reachableFrom(source, seen);
  }
  return seen;
}

/** What the package is made of. */
const SOURCES = ['src', 'semconv']
  .flatMap((folder) => filesIn(join(ROOT, folder)).map((file) => `${folder}/${file}`))
  .filter((file) => /^(src\/.*|semconv\/[^/]+)\.ts$/.test(file));

it('no module imports itself by way of others, types included', () => {
  const circular = SOURCES.filter((source) => reachableFrom(join(ROOT, source)).has(source));
  expect(circular).toEqual([]);
});

describe('the layers', () => {
  /** Each knows those before it, and none of those after it. */
  const LAYERS = ['scheduler', 'histograms', 'metrics', 'tracing'];

  it('are the folders of src', () => {
    const entries = readdirSync(join(ROOT, 'src'), { withFileTypes: true });
    const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
    expect(folders.sort()).toEqual([...LAYERS].sort());
  });

  it.each(LAYERS)('reach nothing above them from %s', (layer) => {
    const above = LAYERS.slice(LAYERS.indexOf(layer) + 1).map((name) => `src/${name}/`);
    const modules = SOURCES.filter((source) => source.startsWith(`src/${layer}/`)).flatMap(
      (source) => [...reachableFrom(join(ROOT, source))],
    );
    expect(modules.filter((module) => above.some((start) => module.startsWith(start)))).toEqual([]);
  });
});

describe('the scheduler', () => {
  const folder = join(ROOT, 'src/scheduler');
  it.each(filesIn(folder))(
    'knows nothing of OpenTelemetry or of the layers above in %s',
    (file) => {
      const modules = [...reachableFrom(join(folder, file))];
      expect(
        modules.filter((module) => !/^(node:|src\/scheduler\/|semconv\/[a-z]+\.ts$)/.test(module)),
      ).toEqual([]);
    },
  );
});

describe('the conventions', () => {
  const folder = join(ROOT, 'semconv');
  const sources = filesIn(folder).filter((file) => /^[^/]+\.ts$/.test(file));
  it.each(sources)('stand on their own in %s', (file) => {
    const modules = [...reachableFrom(join(folder, file))];
    expect(modules.filter((module) => !/^semconv\/[a-z]+\.ts$/.test(module))).toEqual([]);
  });
});

describe.each(['index', 'instrumentation', 'register'])('the entry %s', (entry) => {
  it('needs nothing but the API', () => {
    const modules = [...reachableFrom(join(ROOT, `src/${entry}.ts`))];
    const packages = modules.filter((module) => !/^(node:|src\/|semconv\/)/.test(module));
    expect(packages).toEqual(['@opentelemetry/api']);
  });
});

describe('the producer', () => {
  it('needs the metrics SDK, its optional peer, and the API', () => {
    const modules = [...reachableFrom(join(ROOT, 'src/histograms/index.ts'))];
    const packages = modules.filter((module) => !/^(node:|src\/|semconv\/)/.test(module));
    expect(packages.sort()).toEqual(['@opentelemetry/api', '@opentelemetry/sdk-metrics']);
  });
});
