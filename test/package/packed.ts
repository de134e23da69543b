import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, posix } from 'node:path';

export const ROOT = join(import.meta.dirname, '../..');

export interface Packed {
  /** A project that has the package installed, with the peer dependencies that are not optional, and nothing else. */
  readonly project: string;
  readonly tarball: string;
  /** Where the package lies in the project. */
  readonly folder: string;
  /** Its files, relative to the folder, with slashes. */
  readonly files: readonly string[];
}

/** Packs what was built, and installs it into a project of its own under the temporary folder. */
export function pack(): Packed {
  if (!existsSync(join(ROOT, 'dist')))
    throw new Error('nothing to pack: npm run build comes first');
  const project = mkdtempSync(join(tmpdir(), 'llama-stage-otel-'));
  // Without scripts: packing would build anew, while other tests read dist/.
  const args = ['pack', '--ignore-scripts', '--json', '--pack-destination', project];
  const output = execFileSync('npm', args, { cwd: ROOT, encoding: 'utf8' });
  const [{ name, filename }] = JSON.parse(output);
  const tarball = join(project, filename);

  const folder = join(project, 'node_modules', name);
  mkdirSync(folder, { recursive: true });
  execFileSync('tar', ['-xzf', tarball, '-C', folder, '--strip-components=1']);
  const { peerDependencies, peerDependenciesMeta = {} } = manifestIn(folder);
  for (const peer of Object.keys(peerDependencies)) {
    if (peerDependenciesMeta[peer]?.optional) continue;
    const link = join(project, 'node_modules', peer);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', peer), link, 'dir');
  }
  return { project, tarball, folder, files: filesIn(folder) };
}

export function manifestIn(folder: string) {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
}

/** The module specifiers that a module of ours, or its declarations, imports. */
export function importsOf(path: string): string[] {
  const text = readFileSync(path, 'utf8');
  const statements = /^\s*(?:import|export)\s(?:[^'";]*\sfrom\s)?\s*['"]([^'"]+)['"]/gm;
  const calls = /(?<![#.\w])(?:import|require)\(\s*['"]([^'"]+)['"]/g;
  return [statements, calls].flatMap((pattern) =>
    [...text.matchAll(pattern)].flatMap(([, specifier]) => specifier ?? []),
  );
}

/** The files below a folder, relative to it, with slashes. */
export function filesIn(folder: string, prefix = ''): string[] {
  return readdirSync(join(folder, prefix), { withFileTypes: true }).flatMap((entry) => {
    const path = posix.join(prefix, entry.name);
    return entry.isDirectory() ? filesIn(folder, path) : path;
  });
}
