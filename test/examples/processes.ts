import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/**
 * The stage processes that a coordinator started, and that still are. One that does not run its own
 * program yet is left out: to stop it there would stop the system call that the coordinator is in.
 */
export function stagesOf(pid: number): number[] {
  const children = read(`/proc/${pid}/task/${pid}/children`).trim().split(' ');
  return children
    .filter((child) => read(`/proc/${child}/cmdline`).includes('stage.js'))
    .map(Number);
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process is gone.
    return '';
  }
}

const LISTENING = '0A';

/** The ports at which a process listens: what any other process of the machine can find out. */
export function listeningPorts(pid: number): number[] {
  const inodes = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
      } catch {
        return [];
      }
    }),
  );
  return readFileSync('/proc/net/tcp', 'utf8')
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state, ...rest]) => state === LISTENING && inodes.has(rest[5] ?? ''))
    .map(([, local = '']) => Number.parseInt(local.split(':')[1] ?? '', 16));
}
