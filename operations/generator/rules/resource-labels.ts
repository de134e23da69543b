import { ATTR_LLAMA_STAGE_STAGE_ID } from '../../../semconv/attributes.js';
import { labelName } from '../prometheus-names.js';

const SERVICE_NAMESPACE = 'service.namespace';

/**
 * Attributes of a resource that its series carry as labels: which deployment they belong to, as the
 * stages of a chain are services with names of their own, and a name for an instance that tells a
 * person more than its random id.
 */
export const PROMOTED_ATTRIBUTES = [SERVICE_NAMESPACE, ATTR_LLAMA_STAGE_STAGE_ID] as const;

/** Tells the chains of one deployment from those of another; absent where there is but one. */
export const CHAIN_LABEL = labelName(SERVICE_NAMESPACE);
