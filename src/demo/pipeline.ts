import type { Pool } from "pg";
import { storeExampleResult } from "../store/example-pipeline.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Scene } from "./cast.ts";
import type { DemoReceivers } from "./demo-receivers.ts";

/** The pipeline's own side: its result and the publishing are one transaction. */
export type DemoPipeline = {
  /** Returns the delivery's id. */
  complete(scene: Scene): Promise<string>;
  /** Does the same, and then something else in the transaction fails. */
  completeInVain(scene: Scene): Promise<void>;
};

class SomethingElseFailed extends Error {}

export function createDemoPipeline(pool: Pool, accountId: string, receivers: DemoReceivers): DemoPipeline {
  const resultOf = ({ analysisId, analysis, receiver, hasOwnUrl }: Scene) => ({
    accountId,
    analysisId,
    analysis,
    webhookUrl: hasOwnUrl ? receivers.url(receiver) : null,
  });
  return {
    complete: (scene) => inTransaction(pool, (client) => storeExampleResult(client, resultOf(scene))),
    completeInVain: async (scene) => {
      const work = inTransaction(pool, async (client) => {
        await storeExampleResult(client, resultOf(scene));
        throw new SomethingElseFailed("the disk of the pipeline is full");
      });
      await work.catch((error) => {
        if (!(error instanceof SomethingElseFailed)) throw error;
      });
    },
  };
}
