import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { writeDashboards } from './dashboards/write-dashboards.js';
import { writeRules } from './rules/write-rules.js';
import { writePrometheusConfig } from './write-prometheus-config.js';

/** Where npm runs its scripts, the package's root, has this folder. */
const OPERATIONS = 'operations';

for (const [path, text] of [...writeDashboards(), ...writeRules(), ...writePrometheusConfig()]) {
  const file = join(OPERATIONS, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
