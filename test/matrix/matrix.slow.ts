import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const WORKER = join(import.meta.dirname, 'worker');

/** The ends of what the manifest allows, and what most users have. No Node: the one that runs. */
const LINES = [
  { api: '1.9.0', sdk: '2.0.0', sdkNode: '0.200.0' },
  { api: '1.9.1', sdk: '2.12.0', sdkNode: '0.223.0' },
  { node: '24', api: '1.9.1', sdk: '2.12.0', sdkNode: '0.223.0' },
  { node: '24', api: '1.10.0', sdk: '3.1.0', sdkNode: '0.301.0' },
  { node: '26', api: '1.10.0', sdk: '3.1.0', sdkNode: '0.301.0' },
];

const folder = mkdtempSync(join(tmpdir(), 'llama-stage-otel-matrix-'));
let tarball: string;
beforeAll(() => {
  const args = ['pack', '--ignore-scripts', '--json', '--pack-destination', folder];
  const [{ filename }] = JSON.parse(execFileSync('npm', args, { cwd: ROOT, encoding: 'utf8' }));
  tarball = join(folder, filename);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.each(LINES)('Node $node, API $api, SDK $sdk', ({ node, api, sdk, sdkNode }) => {
  let project: string;
  beforeAll(() => {
    project = mkdtempSync(join(folder, 'project-'));
    const packages = [
      tarball,
      `@opentelemetry/api@${api}`,
      `@opentelemetry/sdk-metrics@${sdk}`,
      `@opentelemetry/sdk-node@${sdkNode}`,
      ...(node === undefined ? [] : [`node-${process.platform}-${process.arch}@${node}`]),
    ];
    execFileSync('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', ...packages], {
      cwd: project,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    cpSync(WORKER, join(project, 'worker'), { recursive: true });
  });

  function run(...args: string[]) {
    const binary = `node_modules/node-${process.platform}-${process.arch}/bin/node`;
    const program = node === undefined ? process.execPath : join(project, binary);
    return JSON.parse(execFileSync(program, args, { cwd: project, encoding: 'utf8' }));
  }

  const preload = ['--import', 'llama-stage-otel/register'];
  test.each([
    ['import', ['worker/import.mjs']],
    ['require', ['worker/require.cjs']],
    ['import and the register entry', [...preload, 'worker/import.mjs', 'register']],
    ['require and the register entry', [...preload, 'worker/require.cjs', 'register']],
  ])('metrics and a whole trace by %s', (_, args) => {
    const { metrics, spans, traces, node: version } = run(...args);
    if (node !== undefined) expect(version.split('.')[0]).toBe(node);
    expect(metrics).toMatchObject({
      'llama_stage.verify_window.opened': 1,
      'llama_stage.verify_window.completed': 1,
      'llama_stage.verify_window.in_flight': 0,
      'llama_stage.verify_window.duration': 1,
      'llama_stage.verify_window.accepted_length': 1,
      'llama_stage.stage.compute.duration': 1,
      'gen_ai.server.request.duration': 1,
    });
    expect(traces).toBe(1);
    expect(spans).toEqual({
      'llama_stage.generation': null,
      'llama_stage.verify_window': 'llama_stage.generation',
      'llama_stage.stage.verify_window': 'llama_stage.verify_window',
      'llama_stage.stage.compute': 'llama_stage.stage.verify_window',
    });
  });
});
