/**
 * One generation with an SDK as a user sets it up, and what reached the SDK's ends of it, as JSON
 * on stdout. The modules are handed in, so that it is the same for `import` and `require`.
 */
exports.generate = async ({ api, library, instrumentation, producer, sdkNode, metrics }) => {
  const histograms = new producer.PreaggregatedHistograms();
  class Reader extends metrics.MetricReader {
    async onForceFlush() {}
    async onShutdown() {}
  }
  const reader = new Reader({ metricProducers: [histograms.producer()] });
  const spans = [];
  const collecting = {
    onStart() {},
    onEnd: (span) => spans.push(span),
    forceFlush: async () => {},
    shutdown: async () => {},
  };
  const sdk = new sdkNode.NodeSDK({
    metricReaders: [reader],
    metricReader: reader, // as it was called in the first of the line
    spanProcessors: [collecting],
    instrumentations:
      instrumentation === undefined
        ? []
        : [new instrumentation.VerifyWindowInstrumentation({ histograms })],
  });
  sdk.start();

  const generations = new library.GenerationTelemetry();
  await generations.run({ depth: 2, requestModel: 'm' }, async ({ scheduler, tokensCommitted }) => {
    const window = scheduler.open(0, 0);
    const stage = new library.StageTelemetry({ index: 1 });
    const carrier = library.injectTraceContext(library.windowContext(scheduler, window));
    await stage.window(carrier, (stageWindow) => stageWindow.compute(async () => {}));
    scheduler.completeNext(window.id, { proposedTokens: 4, acceptedTokens: 4 });
    tokensCommitted(5);
  });

  const { resourceMetrics } = await reader.collect();
  const nameOf = (id) => spans.find((span) => span.spanContext().spanId === id)?.name;
  const result = {
    metrics: Object.fromEntries(
      resourceMetrics.scopeMetrics
        .flatMap((scope) => scope.metrics)
        .map(({ descriptor, dataPoints }) => [
          descriptor.name,
          dataPoints.reduce((sum, { value }) => sum + (value.count ?? value), 0),
        ]),
    ),
    spans: Object.fromEntries(
      spans.map(({ name, parentSpanContext }) => [name, nameOf(parentSpanContext?.spanId) ?? null]),
    ),
    traces: new Set(spans.map((span) => span.spanContext().traceId)).size,
    node: process.versions.node,
  };
  await sdk.shutdown();
  api.diag.disable();
  console.log(JSON.stringify(result));
};
