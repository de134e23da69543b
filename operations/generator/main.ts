import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { writeDashboards } from './dashboards/write-dashboards.js';
import { DEFAULTS, type RuleOptions } from './rules/rule-options.js';
import { writePrometheusConfig } from './rules/write-prometheus-config.js';
import { writeRules } from './rules/write-rules.js';
import { writeFigures } from './write-figures.js';

const { out, ...options } = readFlags();
const files = [
  ...writeDashboards(),
  ['prometheus/rules.yaml', writeRules(options)],
  ['prometheus/prometheus.yaml', writePrometheusConfig()],
  ['figures.md', writeFigures(options)],
] as const;
for (const [path, text] of files) {
  const file = join(out, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

/** `--out`, where npm runs its scripts in the package's root, and a flag for each option of the rules. */
function readFlags(): RuleOptions & { readonly out: string } {
  const all = { out: 'operations', ...DEFAULTS };
  const options = Object.fromEntries(
    Object.entries(all).map(([name, value]) => [
      name,
      { type: 'string' as const, default: `${value}` },
    ]),
  );
  const { values } = parseArgs({ options });
  const read = Object.entries(all).map(([name, value]) => {
    const given = values[name];
    if (typeof value === 'string') return [name, given];
    if (!(Number(given) > 0)) throw new RangeError(`--${name} has to be a number above 0`);
    return [name, Number(given)];
  });
  return Object.fromEntries(read) as RuleOptions & { readonly out: string };
}
