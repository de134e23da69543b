import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { findMissing, findProgram } from './programs.js';

const promtool = (...args: string[]) =>
  execFileSync(findProgram('promtool') ?? 'promtool', args, {
    cwd: 'operations/prometheus',
    encoding: 'utf8',
  });

describe.skipIf(findMissing(['promtool']))('promtool', () => {
  test('finds nothing wrong with the rules', () => {
    expect(promtool('check', 'rules', '--lint=all', '--lint-fatal', 'rules.yaml')).toContain(
      'SUCCESS',
    );
  });

  test('sees each alert fire where it should, and only there', () => {
    const output = promtool('test', 'rules', 'rules.test.yaml');
    writeFileSync('build/e2e-rules.txt', output);
    expect(output).toContain('SUCCESS');
  });

  test('takes the configuration', () => {
    expect(promtool('check', 'config', 'prometheus.yaml')).toContain('is valid');
  });
});
