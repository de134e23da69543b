import * as api from '@opentelemetry/api';
import * as metrics from '@opentelemetry/sdk-metrics';
import * as sdkNode from '@opentelemetry/sdk-node';
import * as library from 'llama-stage-otel';
import * as instrumentation from 'llama-stage-otel/instrumentation';
import * as producer from 'llama-stage-otel/producer';
import { generate } from './generate.cjs';

const [how] = process.argv.slice(2);
await generate({
  api,
  library,
  instrumentation: how === 'register' ? undefined : instrumentation,
  producer,
  sdkNode,
  metrics,
});
