import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { env } from 'node:process';

const CACHE =
  env.LLAMA_STAGE_OTEL_BACKENDS ??
  join(env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'llama-stage-otel/bin');

/** Where a program is: in the cache that build-backends.sh fills, or on the PATH. */
export function findProgram(name: string): string | undefined {
  const folders = [CACHE, ...(env.PATH ?? '').split(delimiter)];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

/** The first of these programs that is nowhere, said on stderr; in CI that is an error. */
export function findMissing(names: readonly string[]): string | undefined {
  const missing = names.find((name) => findProgram(name) === undefined);
  if (missing === undefined) return undefined;
  const what = `${missing} is neither on the PATH nor in ${CACHE}: bash test/e2e/build-backends.sh builds it`;
  if (env.CI) throw new Error(what);
  console.error(`skipped, as ${what}`);
  return missing;
}

/** A server that runs until `stop`. */
export interface Running {
  readonly process: ChildProcess;
  /** What it said, for the report of a failure. */
  output(): string;
  stop(): Promise<void>;
}

/** Starts a program, and waits until `url` answers with a status below 400. */
export async function startServer(
  program: string,
  args: readonly string[],
  url: string,
  variables: Readonly<Record<string, string>> = {},
): Promise<Running> {
  const process = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...env, ...variables },
  });
  let output = '';
  for (const stream of [process.stdout, process.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const ended = new Promise<void>((resolve) => process.once('exit', () => resolve()));
  const running: Running = {
    process,
    output: () => output,
    async stop() {
      process.kill('SIGTERM');
      await ended;
    },
  };
  await until(`${program} to answer at ${url}:\n${output}`, async () => {
    if (process.exitCode !== null) throw new Error(`${program} ended:\n${output}`);
    const response = await fetch(url).catch(() => undefined);
    return response?.ok ? true : undefined;
  });
  return running;
}

/** Asks again and again, for at most a minute, until there is an answer. */
export async function until<Answer>(
  what: string,
  ask: () => Promise<Answer | undefined>,
): Promise<Answer> {
  for (let asked = 0; asked < 300; asked++) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`waited in vain for ${what}`);
}

/** This many ports of the loopback interface that nobody listens on. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return server;
    }),
  );
  return Promise.all(
    servers.map(async (server) => {
      const { port } = server.address() as { port: number };
      await new Promise((resolve) => server.close(resolve));
      return port;
    }),
  );
}

/** The first of this many ports in a row that nobody listens on. */
export async function freePortRange(count: number): Promise<number> {
  for (;;) {
    const [first = 0] = await freePorts(1);
    const ports = Array.from({ length: count }, (_, index) => first + index);
    const isFree = await Promise.all(ports.map(canListen));
    if (isFree.every(Boolean)) return first;
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

export async function getJson<Answer>(url: string): Promise<Answer> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return (await response.json()) as Answer;
}
