import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/**
 * The text that ships with the example, as token ids. A token is a word or a mark; every process
 * reads the same file, and so numbers them alike.
 */
export function readText(): readonly number[] {
  const manifest = createRequire(import.meta.url).resolve('llama-stage-otel/package.json');
  const corpus = join(dirname(manifest), 'examples/pipeline/corpus.txt');
  const ids = new Map<string, number>();
  return readFileSync(corpus, 'utf8')
    .split(/\s+/)
    .filter((word) => word !== '')
    .map((word) => {
      const id = ids.get(word) ?? ids.size;
      ids.set(word, id);
      return id;
    });
}
