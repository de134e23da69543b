const { generate } = require('./generate.cjs');

const [how] = process.argv.slice(2);
generate({
  api: require('@opentelemetry/api'),
  library: require('llama-stage-otel'),
  instrumentation: how === 'register' ? undefined : require('llama-stage-otel/instrumentation'),
  producer: require('llama-stage-otel/producer'),
  sdkNode: require('@opentelemetry/sdk-node'),
  metrics: require('@opentelemetry/sdk-metrics'),
});
