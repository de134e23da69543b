import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { findProgram, freePorts, type Running, startServer } from './programs.js';

const FOLDER = resolve('operations/collector');
const program = () => findProgram('otelcol') ?? 'otelcol';

/** Lets the Collector check configurations that are used together; rejects where it finds fault. */
export async function validate(configs: readonly string[]): Promise<void> {
  await promisify(execFile)(program(), ['validate', ...argumentsOf(configs)]);
}

/** The real Collector with configurations of operations/collector, on ports of its own. */
export class Collector {
  readonly #server: Running;
  /** Where it takes OTLP over gRPC: host and port. */
  readonly grpcAddress: string;
  /** Where it takes OTLP over HTTP, without the path of the signal. */
  readonly endpoint: string;
  /** Where it tells about itself. */
  readonly #telemetry: string;

  /** @param configs names in operations/collector, or configurations that override them. */
  static async start(
    configs: readonly (string | object)[],
    variables: Readonly<Record<string, string>>,
  ): Promise<Collector> {
    const [grpc = 0, http = 0, health = 0, telemetry = 0] = await freePorts(4);
    const server = await startServer(
      program(),
      argumentsOf(configs),
      `http://127.0.0.1:${health}`,
      {
        OTLP_GRPC_ADDRESS: `127.0.0.1:${grpc}`,
        OTLP_HTTP_ADDRESS: `127.0.0.1:${http}`,
        HEALTH_ADDRESS: `127.0.0.1:${health}`,
        TELEMETRY_PORT: `${telemetry}`,
        ...variables,
      },
    );
    return new Collector(server, { grpc, http, telemetry });
  }

  private constructor(
    server: Running,
    { grpc, http, telemetry }: { readonly grpc: number; http: number; telemetry: number },
  ) {
    this.#server = server;
    this.grpcAddress = `127.0.0.1:${grpc}`;
    this.endpoint = `http://127.0.0.1:${http}`;
    this.#telemetry = `http://127.0.0.1:${telemetry}/metrics`;
  }

  get pid(): number | undefined {
    return this.#server.process.pid;
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }

  /** One of its own counters, over all of its series. */
  async counter(name: string): Promise<number> {
    const text = await (await fetch(this.#telemetry)).text();
    const values = text
      .split('\n')
      .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
      .map((line) => Number(line.slice(line.lastIndexOf(' '))));
    return values.reduce((sum, value) => sum + value, 0);
  }
}

function argumentsOf(configs: readonly (string | object)[]): string[] {
  return configs.flatMap((config) => [
    '--config',
    typeof config === 'string' ? join(FOLDER, config) : `yaml:${JSON.stringify(config)}`,
  ]);
}
