/** Layers of the simulated model. */
export const MODEL_LAYERS = 32;

/** What tells a stage from the others, in its telemetry and nowhere else. */
export interface StageIdentity {
  readonly index: number;
  readonly id: string;
  readonly layerStart: number;
  /** The layer after the last one. */
  readonly layerEnd: number;
}

/** The stage at a place of the chain; the layers are split as evenly as they can be. */
export function identifyStage(index: number, stages: number): StageIdentity {
  const boundary = (stage: number) => Math.floor((stage * MODEL_LAYERS) / stages);
  return {
    index,
    id: `stage-${index}`,
    layerStart: boundary(index),
    layerEnd: boundary(index + 1),
  };
}
