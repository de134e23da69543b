import fc from 'fast-check';
import { expect, test } from 'vitest';
import { identifyStage, MODEL_LAYERS } from '../../examples/pipeline/stage-identity.js';

test('the stages own all layers, each layer once and none much more than another', () => {
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 16 }), (stages) => {
      const chain = Array.from({ length: stages }, (_, index) => identifyStage(index, stages));
      const owned = chain.flatMap(({ layerStart, layerEnd }) =>
        Array.from({ length: layerEnd - layerStart }, (_, offset) => layerStart + offset),
      );
      expect(owned).toEqual(Array.from({ length: MODEL_LAYERS }, (_, layer) => layer));
      const sizes = chain.map(({ layerStart, layerEnd }) => layerEnd - layerStart);
      expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
      expect(new Set(chain.map(({ id }) => id)).size).toBe(stages);
    }),
  );
});
