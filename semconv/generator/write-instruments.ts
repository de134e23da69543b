import type { Metric, Registry } from './model.js';
import { instrumentConstant, metricConstant } from './names.js';
import { HEADER, namedImports, numbersProperty, stringProperty } from './source-text.js';

export function writeInstruments({ metrics }: Registry): string {
  const names = metrics.map(({ name }) => metricConstant(name));
  return [HEADER, namedImports(names, './metrics.js'), TYPES, ...metrics.map(instrument)].join(
    '\n',
  );
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
