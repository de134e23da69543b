import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { join, posix } from 'node:path';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as conventions from '../../semconv/index.js';
import * as library from '../../src/index.js';
import * as instrumentation from '../../src/instrumentation.js';
import { importsOf, manifestIn, type Packed, pack, ROOT } from './packed.js';

let packed: Packed;
beforeAll(() => {
  packed = pack();
});
afterAll(() => rmSync(packed.project, { recursive: true, force: true }));

/** Runs a program with the Node that runs the tests, and gives what it printed. */
function node(args: readonly string[], cwd: string): string {
  return execFileSync(process.execPath, args, { cwd, encoding: 'utf8' });
}

describe('the tarball', () => {
  it('holds what users need, and nothing else', () => {
    const beside = packed.files.filter((file) => !/^(dist|src|semconv)\//.test(file));
    expect(beside.sort()).toEqual(['LICENSE', 'README.md', 'package.json']);
    const inside = packed.files.filter((file) => !beside.includes(file));
    const expected = [
      /^src\/([a-z-]+\/)*[a-z-]+\.ts$/,
      /^semconv\/[a-z-]+\.ts$/,
      /^dist\/(src\/([a-z-]+\/)*|semconv\/)[a-z-]+\.(js|d\.ts)(\.map)?$/,
    ];
    expect(inside.filter((file) => !expected.some((pattern) => pattern.test(file)))).toEqual([]);
    expect(inside.filter((file) => /test|example|registry|generator|bench/.test(file))).toEqual([]);
  });

  it('holds every source, built', () => {
    const sources = packed.files.filter((file) => /^(src|semconv)\//.test(file));
    expect(sources).toContain('src/scheduler/scheduler.ts');
    const built = sources.flatMap((source) => {
      const stem = `dist/${source.slice(0, -'.ts'.length)}`;
      return [`${stem}.js`, `${stem}.js.map`, `${stem}.d.ts`, `${stem}.d.ts.map`];
    });
    expect(packed.files.filter((file) => file.startsWith('dist/')).sort()).toEqual(built.sort());
  });

  it('holds every file that its source maps point at', () => {
    const maps = packed.files.filter((file) => file.endsWith('.map'));
    const sources = maps.flatMap((file) => {
      const map = JSON.parse(readFileSync(join(packed.folder, file), 'utf8'));
      return (map.sources as string[]).map((source) =>
        posix.join(posix.dirname(file), map.sourceRoot ?? '', source),
      );
    });
    expect(sources.length).toBeGreaterThanOrEqual(maps.length);
    expect(sources.filter((source) => !packed.files.includes(source))).toEqual([]);
  });

  it('imports nothing but Node, itself and its peer dependencies', () => {
    const { dependencies, peerDependencies, peerDependenciesMeta } = manifestIn(packed.folder);
    expect(dependencies).toBeUndefined();
    const required = Object.keys(peerDependencies).filter(
      (peer) => !peerDependenciesMeta[peer]?.optional,
    );
    expect(required).toEqual(['@opentelemetry/api']);

    const imports = packed.files
      .filter((file) => /\.(js|d\.ts)$/.test(file))
      .flatMap((file) =>
        importsOf(join(packed.folder, file)).map((specifier) => ({ file, specifier })),
      );
    expect(new Set(imports.map(({ specifier }) => specifier))).toContain('@opentelemetry/api');
    const unknown = imports.filter(({ file, specifier }) => {
      if (specifier.startsWith('.')) {
        return !packed.files.includes(posix.join(posix.dirname(file), specifier));
      }
      const isNode = specifier.startsWith('node:') && isBuiltin(specifier);
      return !isNode && !(specifier in peerDependencies);
    });
    expect(unknown).toEqual([]);
  });
});

describe('the manifest', () => {
  it('has nothing that publint would change', async () => {
    // Installed, so whatever is there is what was published.
    const options = {
      pkgDir: packed.folder,
      pack: false,
      level: 'suggestion',
      strict: true,
    } as const;
    const { messages, pkg } = await publint(options);
    const told = messages.map((message) => formatMessage(message, pkg, { color: false }));
    expect(told).toEqual([]);
  });

  it('gives types in every module mode that reads exports', () => {
    const cli = join(ROOT, 'node_modules/@arethetypeswrong/cli');
    const bin = join(cli, manifestIn(cli).bin.attw);
    const options = ['--profile', 'esm-only', '--format', 'json'];
    // Exits with 1, and throws here, where there is a problem that the profile does not ignore.
    const { problems, analysis } = JSON.parse(node([bin, packed.tarball, ...options], ROOT));
    expect(Object.keys(analysis.entrypoints)).toEqual(
      expect.arrayContaining(['.', './instrumentation', './producer', './register', './semconv']),
    );
    // What ESM-only means: CommonJS without require(esm), and what came before exports, get none.
    const kinds = Object.keys(problems ?? {});
    expect(kinds.filter((kind) => !['CJSResolvesToESM', 'NoResolution'].includes(kind))).toEqual(
      [],
    );
  });
});

describe.each([
  ['from inside the repository', () => ROOT],
  ['from a project that installed it', () => packed.project],
])('the package, imported %s', (_, project) => {
  it.each([
    ['llama-stage-otel', library],
    ['llama-stage-otel/instrumentation', instrumentation],
    ['llama-stage-otel/register', {}],
    ['llama-stage-otel/semconv', conventions],
  ])('is %s, without an SDK', (specifier, expected) => {
    const print = 'console.log(JSON.stringify(Object.keys(await import(process.argv[1])).sort()))';
    const names = JSON.parse(node(['--input-type=module', '-e', print, specifier], project()));
    expect(names).toEqual(Object.keys(expected).sort());
  });

  it.skipIf(!process.features.require_module)('can be required', () => {
    const program = `
      const { VerifyWindowScheduler } = require('llama-stage-otel');
      const { ATTR_ERROR_TYPE } = require('llama-stage-otel/semconv');
      const scheduler = new VerifyWindowScheduler({ depth: 2 });
      console.log(scheduler.open(0, 0).id, ATTR_ERROR_TYPE);
    `;
    expect(node(['--input-type=commonjs', '-e', program], project())).toBe('1 error.type\n');
  });

  it('shows its manifest, and hides its insides', () => {
    const program = `
      const { createRequire } = await import('node:module');
      const require = createRequire(process.cwd() + '/');
      console.log(require('llama-stage-otel/package.json').name);
      await import('llama-stage-otel/dist/src/index.js').catch(({ code }) => console.log(code));
    `;
    expect(node(['--input-type=module', '-e', program], project())).toBe(
      'llama-stage-otel\nERR_PACKAGE_PATH_NOT_EXPORTED\n',
    );
  });
});
