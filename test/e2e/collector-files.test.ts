import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConventions } from '../../semconv/generator/generate.js';
import * as semconv from '../../semconv/index.js';
import * as instruments from '../../semconv/instruments.js';

const ROOT = join(import.meta.dirname, '../..');
const OPERATIONS = join(ROOT, 'operations');
const read = (file: string) => readFileSync(join(OPERATIONS, file), 'utf8');
const registry = readConventions(join(ROOT, 'semconv'));
const unique = (names: readonly string[]) => [...new Set(names)].sort();

interface Statements {
  readonly context: string;
  readonly statements: readonly string[];
}

interface Guards {
  readonly processors: {
    readonly 'transform/conventions': {
      readonly trace_statements: readonly Statements[];
      readonly metric_statements: readonly Statements[];
    };
  };
}

describe('the guards', () => {
  const { processors } = parse(read('collector/guards.yaml')) as Guards;
  const { metric_statements, trace_statements } = processors['transform/conventions'];
  const listOf = (groups: readonly Statements[], context: string) => {
    const statements = groups.find((group) => group.context === context)?.statements ?? [];
    const keeping = statements.find((statement) => statement.startsWith('keep_keys')) ?? '';
    const list = keeping.slice(keeping.indexOf('['));
    return [...list.matchAll(/"([^"]+)"/g)].map(([, name]) => name as string);
  };

  test('keep every attribute of the conventions on spans, and no other', () => {
    expect(listOf(trace_statements, 'span')).toEqual(
      unique(registry.attributes.map(({ name }) => name)),
    );
  });

  test('keep on events what the conventions put there', () => {
    expect(listOf(trace_statements, 'spanevent')).toEqual(
      unique(registry.events.flatMap(({ attributes }) => attributes.map(({ name }) => name))),
    );
  });

  test('keep on metrics what the conventions put there, and the name of the run in the demo', () => {
    const names = registry.metrics.flatMap(({ attributes }) => attributes.map(({ name }) => name));
    expect(unique(listOf(metric_statements, 'datapoint'))).toEqual(
      unique([...names, semconv.ATTR_OTEL_METRIC_OVERFLOW, 'pipeline.run']),
    );
  });

  test('keep of resources what tells services and stages apart', () => {
    const resource = listOf(trace_statements, 'resource');
    expect(listOf(metric_statements, 'resource')).toEqual(resource);
    const stage = registry.entities.flatMap(({ attributes }) => attributes.map(({ name }) => name));
    expect(resource).toEqual(expect.arrayContaining([...stage, 'service.instance.id']));
    const known = registry.attributes.map(({ name }) => name);
    const others = resource.filter((name) => !known.includes(name));
    expect(others.filter((name) => !/^(service|telemetry\.sdk|deployment)\./.test(name))).toEqual(
      [],
    );
  });

  test('give exponential histograms the bounds of the conventions', () => {
    const conversions = metric_statements
      .flatMap(({ statements }) => statements)
      .flatMap((statement) => {
        const [, list, name, pattern] =
          /^convert\w+\("midpoint", \[\s*0\.0, ([^\]]+)\]\)(?: where (?:metric\.name == "(.+)"|IsMatch\(metric\.name, "(.+)"\)))?$/.exec(
            statement,
          ) ?? [];
        if (list === undefined) return [];
        const matches = new RegExp(name ?? pattern?.replaceAll('\\\\', '\\') ?? '');
        return [{ matches, bounds: list.split(',').map(Number) }];
      });
    for (const instrument of Object.values(instruments)) {
      if (instrument.kind !== 'histogram') continue;
      const { bounds } = conversions.find(({ matches }) => matches.test(instrument.name)) ?? {};
      const { advice } = (instrument as instruments.HistogramInstrument).options;
      expect(bounds, instrument.name).toEqual(advice.explicitBucketBoundaries);
    }
  });

  test('let every metric of the conventions pass', () => {
    const pattern = /IsMatch\(metric\.name, "(.+)"\)/.exec(read('collector/guards.yaml'))?.[1];
    const passes = new RegExp(String(pattern).replaceAll('\\\\', '\\'));
    expect(registry.metrics.filter(({ name }) => !passes.test(name))).toEqual([]);
  });
});

describe('the manifest', () => {
  test('has every component that a configuration uses', () => {
    const modules = read('collector/manifest.yaml');
    const used = ['one-machine', 'agent', 'gateway', 'guards'].flatMap((name) => {
      const config = parse(read(`collector/${name}.yaml`), { merge: true });
      return ['receivers', 'processors', 'exporters', 'extensions'].flatMap((kind) =>
        Object.keys(config[kind] ?? {}).map(
          (id) => `${kind.slice(0, -1)}/${id.replace(/\/.*/, '').replaceAll('_', '')}`,
        ),
      );
    });
    // Two components are named otherwise than their modules.
    const moduleOf = (id: string) =>
      id.replace('otlpgrpc', 'otlp').replace(/^(\w+)\/(\w+)$/, '$1/$2$1');
    expect(unique(used.map(moduleOf)).filter((module) => !modules.includes(module))).toEqual([]);
  });
});

describe('the compose file', () => {
  const { services, volumes } = parse(read('compose.yaml')) as {
    readonly services: Record<
      string,
      {
        readonly image: string;
        readonly command?: readonly string[];
        readonly environment?: Readonly<Record<string, string>>;
        readonly volumes: readonly string[];
        readonly ports: readonly string[];
      }
    >;
    readonly volumes: object;
  };
  const all = Object.entries(services);

  test('brings up Collector, Prometheus, Jaeger and Grafana in fixed versions', () => {
    expect(Object.keys(services).sort()).toEqual(['collector', 'grafana', 'jaeger', 'prometheus']);
    for (const [, { image }] of all) expect(image).toMatch(/^[\w/-]+:v?\d+\.\d+\.\d+$/);
  });

  test('opens no port to other machines', () => {
    const open = all.flatMap(([, { ports }]) => ports);
    expect(open.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([]);
  });

  test('mounts what there is, and starts each program with a file that it mounts', () => {
    for (const [, { command = [], volumes: mounts }] of all) {
      const mounted = mounts.map((mount) => mount.split(':') as [string, string]);
      for (const [source] of mounted) {
        const isThere = source.startsWith('./')
          ? existsSync(join(OPERATIONS, source))
          : source in volumes;
        expect(isThere, source).toBe(true);
      }
      for (const flag of command) {
        const file = /config(?:\.file)?=(.+)/.exec(flag)?.[1];
        if (file === undefined) continue;
        const [source, target] = mounted.find(([, target]) => file.startsWith(`${target}/`)) ?? [];
        const local = join(OPERATIONS, `${source}`, file.slice(`${target}`.length));
        expect(existsSync(local), file).toBe(true);
      }
    }
  });

  test('names services where it names hosts, and variables that the files know', () => {
    const files = ['collector/one-machine.yaml', 'jaeger/jaeger.yaml'].map(read).join('\n');
    const provisioning = ['datasources', 'dashboards']
      .map((name) => read(`grafana/provisioning/${name}/${name}.yaml`))
      .join('\n');
    for (const [, { environment = {} }] of all) {
      for (const [name, value] of Object.entries(environment)) {
        const isKnown =
          /^(GF|OTEL)_/.test(name) ||
          files.includes(`\${env:${name}:-`) ||
          provisioning.includes(`\${${name}}`);
        expect(isKnown, name).toBe(true);
        const host = /^(?:http:\/\/)?([\w.]+):\d+/.exec(value)?.[1];
        if (host !== undefined) expect(['0.0.0.0', ...Object.keys(services)]).toContain(host);
      }
    }
  });

  test('gives Grafana the data sources that dashboards refer to', () => {
    const { datasources } = parse(read('grafana/provisioning/datasources/datasources.yaml'));
    const ids = datasources.map(({ type, uid }: { type: string; uid: string }) => [type, uid]);
    expect(ids).toEqual([
      ['prometheus', 'prometheus'],
      ['jaeger', 'jaeger'],
    ]);
  });

  test('tells Grafana how often workers export, so that its ranges hold two exports', () => {
    const { datasources } = parse(read('grafana/provisioning/datasources/datasources.yaml'));
    expect(datasources[0].jsonData.timeInterval).toBe('60s');
  });

  /** The versions that the image of each service has. */
  const versions = Object.fromEntries(
    all.map(([name, { image }]) => [name, image.slice(image.lastIndexOf(':') + 1)]),
  );

  test('starts the versions that the tests run against', () => {
    const script = readFileSync(join(ROOT, 'test/e2e/build-backends.sh'), 'utf8');
    const built = (name: string) =>
      /^v\d+\.(\d+)\.(\d+)$/.exec(new RegExp(`^${name}=(\\S+)`, 'm').exec(script)?.[1] ?? '') ?? [];
    const [, prometheusMinor, prometheusPatch] = built('PROMETHEUS');
    // Modules of Prometheus 3 are v0.3yy.z; those of Jaeger 2 count on from 1, 63 ahead.
    expect(versions.prometheus).toBe(`v3.${Number(prometheusMinor) - 300}.${prometheusPatch}`);
    const [, jaegerMinor, jaegerPatch] = built('JAEGER');
    expect(versions.jaeger).toBe(`2.${Number(jaegerMinor) - 63}.${jaegerPatch}`);
    const [collector = ''] = built('COLLECTOR');
    expect(`v${versions.collector}`).toBe(collector);
    const modules = [...read('collector/manifest.yaml').matchAll(/gomod: \S+ (\S+)/g)];
    expect(unique(modules.map(([, version]) => version as string))).toEqual([collector]);
  });

  test('starts the versions that the pages name', () => {
    const table = Object.fromEntries(
      [
        ...read('README.md').matchAll(/^\| (Collector|Grafana|Jaeger|Prometheus) +\| ([\d.]+)/gm),
      ].map(([, name = '', version]) => [name.toLowerCase(), version]),
    );
    const bare = Object.entries(versions).map(([name, version]) => [
      name,
      version.replace('v', ''),
    ]);
    expect(table).toEqual(Object.fromEntries(bare));
    const pages = ['README.md', 'operations/README.md', 'operations/scale.md'].map((page) =>
      readFileSync(join(ROOT, page), 'utf8'),
    );
    const named = /\b(Collector|Grafana|Jaeger|Prometheus)\s+v?(\d+\.[\d.]*\d)/g;
    for (const [text, name = '', version = ''] of pages.join('\n').matchAll(named)) {
      expect(`${table[name.toLowerCase()]}.`, text).toContain(`${version}.`);
    }
  });
});
