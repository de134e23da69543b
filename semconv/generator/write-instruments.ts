import type { Metric, Registry } from './model.js';
import { instrumentConstant, metricConstant } from './names.js';
import { HEADER, numbersProperty, stringProperty } from './source-text.js';

export function writeInstruments({ metrics }: Registry): string {
  return [HEADER, imports(metrics), TYPES, ...metrics.map(instrument)].join('\n');
}

function imports(metrics: readonly Metric[]): string {
  const names = metrics.map((metric) => `  ${metricConstant(metric.name)},\n`);
  return `import {\n${names.join('')}} from './metrics.js';\n`;
}

const TYPES = `/** The arguments of \`meter.create…(name, options)\`, without a dependency on the API. */
export interface Instrument {
  readonly kind: 'counter' | 'updowncounter' | 'gauge' | 'histogram';
  readonly name: string;
  readonly options: {
    description: string;
    unit: string;
    valueType: typeof INT | typeof DOUBLE;
  };
}

export interface HistogramInstrument extends Instrument {
  readonly options: Instrument['options'] & {
    advice: { explicitBucketBoundaries: number[] };
  };
}

/** The numbers of the API's \`ValueType\`. */
const INT = 0;
const DOUBLE = 1;
`;

function instrument(metric: Metric): string {
  const histogram = metric.instrument === 'histogram';
  const type = histogram ? 'HistogramInstrument' : 'Instrument';
  return [
    `export const ${instrumentConstant(metric.name)}: ${type} = {`,
    `  kind: '${metric.instrument}',`,
    `  name: ${metricConstant(metric.name)},`,
    '  options: {',
    stringProperty('    ', 'description', metric.brief),
    stringProperty('    ', 'unit', metric.unit),
    `    valueType: ${metric.valueType.toUpperCase()},`,
    ...(histogram ? advice(metric) : []),
    '  },',
    '};',
    '',
  ].join('\n');
}

function advice({ bucketBoundaries }: Metric): readonly string[] {
  return [
    '    advice: {',
    numbersProperty('      ', 'explicitBucketBoundaries', bucketBoundaries),
    '    },',
  ];
}
