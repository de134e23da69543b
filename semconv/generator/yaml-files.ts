import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { Fields, RegistryError } from './fields.js';

/** Weaver's own file in a registry's folder: it names the registry, and defines nothing. */
const MANIFEST = 'manifest.yaml';

export function readRegistryFiles(folder: string): readonly Fields[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith('.yaml') && file !== MANIFEST)
    .sort()
    .map((file) => readYaml(join(folder, file), file));
}

export function readYaml(path: string, place: string): Fields {
  try {
    return Fields.of(parse(readFileSync(path, 'utf8')), place);
  } catch (error) {
    if (error instanceof RegistryError) throw error;
    throw new RegistryError(`${place}: ${error instanceof Error ? error.message : error}`);
  }
}
