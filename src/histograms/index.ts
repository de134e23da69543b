export {
  type HistogramAggregation,
  HistogramProducer,
  type HistogramProducerOptions,
} from './histogram-producer.js';
export { PreaggregatedHistograms } from './preaggregated-histograms.js';
