import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export interface Memory {
  /** Bytes of one live scheduler. */
  readonly liveBytes: {
    readonly bare: number;
    readonly observed: number;
    readonly observedAndFull: number;
  };
  /** Bytes that are left after the work, garbage collected. */
  readonly growthBytes: {
    readonly afterTenMillionWindows: number;
    readonly afterAMillionClosed: number;
    readonly afterAMillionForgotten: number;
  };
}

export function measureMemory(): Memory {
  const probe = fileURLToPath(new URL('./memory-probe.js', import.meta.url));
  return JSON.parse(execFileSync(process.execPath, ['--expose-gc', probe], { encoding: 'utf8' }));
}
