import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { nameLiterals } from './name-literals.js';

const SRC = join(import.meta.dirname, '../../src');

describe('names of the registry', () => {
  it('are nowhere spelled out in src', () => {
    const files = readdirSync(SRC, { encoding: 'utf8', recursive: true });
    const found = files
      .filter((file) => file.endsWith('.ts'))
      .flatMap((file) =>
        nameLiterals(readFileSync(join(SRC, file), 'utf8')).map((place) => `src/${file}:${place}`),
      );
    expect(found).toEqual([]);
  });
});

describe('nameLiterals', () => {
  it.each([
    ['a string', "x('llama_stage.stage.index')", ['1: llama_stage.stage.index']],
    ['double quotes', '\nx("gen_ai.operation.name")', ['2: gen_ai.operation.name']],
    ['a template', 'x(`llama_stage.$' + '{y}`)', ['1: llama_stage.']],
    ['a string within a template', '`$' + "{z['error.type']}`", ['1: error.type']],
    ['code after an address', "f('http://x', 'error.type')", ['1: error.type']],
    ['code after a comment', "/* 'a'\n */ x('error.type') // 'error.type'", ['2: error.type']],
  ])('finds %s', (_, source, found) => {
    expect(nameLiterals(source)).toEqual(found);
  });

  it.each([
    ['a line comment', "// 'llama_stage.stage.index'"],
    ['a block comment', "/**\n * 'llama_stage.stage.index'\n */"],
    ['a longer word', "x('error.types')"],
    ['a name inside a text', "x('the llama_stage.stage.index')"],
    ["the package's name", "x('llama-stage-otel')"],
  ])('leaves %s alone', (_, source) => {
    expect(nameLiterals(source)).toEqual([]);
  });
});
