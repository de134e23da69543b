import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { findProgram, freePorts, getJson, type Running, startServer } from './programs.js';

/** One series of an instant query. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The real Prometheus on a port of its own: it scrapes targets, and takes OTLP. */
export class Prometheus {
  readonly #server: Running;
  readonly url: string;

  /** @param config what stands in its configuration, which may be nothing. */
  static async start(
    folder: string,
    config: object,
    flags: readonly string[] = [],
  ): Promise<Prometheus> {
    const file = join(folder, 'prometheus.yaml');
    writeFileSync(file, stringify(config));
    return Prometheus.startWith(file, folder, flags);
  }

  /** Starts it with a configuration of its own; its data goes into the folder. */
  static async startWith(
    file: string,
    folder: string,
    flags: readonly string[] = [],
  ): Promise<Prometheus> {
    const [port = 0] = await freePorts(1);
    const url = `http://127.0.0.1:${port}`;
    const args = [
      `--config.file=${file}`,
      `--storage.tsdb.path=${join(folder, 'tsdb')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--web.enable-otlp-receiver',
      ...flags,
    ];
    const program = findProgram('prometheus') ?? 'prometheus';
    return new Prometheus(await startServer(program, args, `${url}/-/ready`), url);
  }

  private constructor(server: Running, url: string) {
    this.#server = server;
    this.url = url;
  }

  get metricsEndpoint(): string {
    return `${this.url}/api/v1/otlp/v1/metrics`;
  }

  get pid(): number | undefined {
    return this.#server.process.pid;
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }

  /** An instant query; throws for one that is refused, and for one that warns. */
  async query(promql: string, at = new Date()): Promise<Sample[]> {
    const parameters = new URLSearchParams({ query: promql, time: at.toISOString() });
    const answer = await getJson<QueryAnswer>(`${this.url}/api/v1/query?${parameters}`);
    const told = [...(answer.warnings ?? []), ...(answer.infos ?? [])];
    if (told.length > 0) throw new Error(`${promql}: ${told.join('; ')}`);
    if (answer.data.resultType === 'scalar') {
      return [{ metric: {}, value: Number(answer.data.result[1]) }];
    }
    return answer.data.result.map(({ metric, value: [, value] }) => ({
      metric,
      value: Number(value),
    }));
  }
}

interface QueryAnswer {
  readonly warnings?: readonly string[];
  readonly infos?: readonly string[];
  readonly data:
    | { readonly resultType: 'scalar'; readonly result: readonly [number, string] }
    | {
        readonly resultType: 'vector';
        readonly result: readonly {
          readonly metric: Record<string, string>;
          readonly value: readonly [number, string];
        }[];
      };
}
