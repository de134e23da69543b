/**
 * A comment, or a quote with one of the registry's names right after it. Comments come first, so
 * that whatever they quote is skipped; `://` in a string begins none.
 */
const COMMENT_OR_NAME =
  /\/\*[\s\S]*?\*\/|(?<!:)\/\/.*|(['"`])((?:llama_stage|gen_ai)\.[\w.]*|error\.type(?=\1))/g;

/** Where a TypeScript source spells a name that the registry has a constant for, as `line: name`. */
export function nameLiterals(source: string): readonly string[] {
  return [...source.matchAll(COMMENT_OR_NAME)].flatMap((match) => {
    const name = match[2];
    if (name === undefined) return [];
    const line = source.slice(0, match.index).split('\n').length;
    return `${line}: ${name}`;
  });
}
