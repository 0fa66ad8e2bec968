import type { Pool } from "pg";
import type { NodeKind } from "../model/node-kinds.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import { createAnalyzeStep } from "./analyze.ts";
import { createDocumentsStep } from "./documents.ts";
import { createExternalAnalysisStep } from "./external-analysis.ts";
import { triggerStep } from "./manual-trigger.ts";
import type { NodeStep } from "./node-step.ts";
import { waitStep } from "./wait.ts";

export type NodeSteps = { readonly [Kind in NodeKind]: NodeStep<Kind> };

/** What every kind of node does. */
export function createNodeSteps(pool: Pool, objects: ObjectStore): NodeSteps {
  return {
    manual_trigger: triggerStep,
    documents: createDocumentsStep(pool),
    wait: waitStep,
    analyze: createAnalyzeStep(pool, objects),
    external_analysis: createExternalAnalysisStep(pool),
  };
}
