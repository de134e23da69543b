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

  /** @param targets `host:port` of endpoints that it scrapes each second. */
  static async start(folder: string, targets: readonly string[]): Promise<Prometheus> {
    const [port = 0] = await freePorts(1);
    const config = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      scrape_configs: [{ job_name: 'pipeline', static_configs: [{ targets }] }],
    };
    const file = join(folder, 'prometheus.yml');
    writeFileSync(file, stringify(config));
    const url = `http://127.0.0.1:${port}`;
    const args = [
      `--config.file=${file}`,
      `--storage.tsdb.path=${join(folder, 'tsdb')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--web.enable-otlp-receiver',
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

  stop(): Promise<void> {
    return this.#server.stop();
  }

  /** An instant query; throws for one that is refused, and for one that warns. */
  async query(promql: string): Promise<Sample[]> {
    const answer = await getJson<QueryAnswer>(
      `${this.url}/api/v1/query?${new URLSearchParams({ query: promql })}`,
    );
    const told = [...(answer.warnings ?? []), ...(answer.infos ?? [])];
    if (told.length > 0) throw new Error(`${promql}: ${told.join('; ')}`);
    return answer.data.result.map(({ metric, value: [, value] }) => ({
      metric,
      value: Number(value),
    }));
  }
}

interface QueryAnswer {
  readonly warnings?: readonly string[];
  readonly infos?: readonly string[];
  readonly data: {
    readonly result: readonly {
      readonly metric: Record<string, string>;
      readonly value: readonly [number, string];
    }[];
  };
}
