import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { writeDashboards } from './dashboards/write-dashboards.js';
import { writePrometheusConfig } from './rules/write-prometheus-config.js';
import { writeRules } from './rules/write-rules.js';

/** Where npm runs its scripts, the package's root, has this folder. */
const OPERATIONS = 'operations';

const files = [
  ...writeDashboards(),
  ['prometheus/rules.yaml', writeRules()],
  ['prometheus/prometheus.yaml', writePrometheusConfig()],
] as const;
for (const [path, text] of files) {
  const file = join(OPERATIONS, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
