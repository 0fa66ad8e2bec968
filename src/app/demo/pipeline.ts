import type { Pool } from "pg";
import { inTransaction } from "../../base/database/transaction.ts";
import type { DemoAnalysis } from "./analyses.ts";
import { storeExampleResult } from "./example-database-sql.ts";
import type { DemoReceivers } from "./receivers.ts";

/** The pipeline: it stores its result and publishes it in one transaction. */
export type DemoPipeline = {
  /** Returns the id of the delivery. */
  complete(analysis: DemoAnalysis): Promise<string>;
  /** The same, but then something else in the transaction fails and it is rolled back. */
  failToComplete(analysis: DemoAnalysis): Promise<void>;
};

class PipelineError extends Error {}

export function createDemoPipeline(pool: Pool, accountId: string, receivers: DemoReceivers): DemoPipeline {
  const resultOf = ({ id, text, receiver, hasOwnUrl }: DemoAnalysis) => ({
    accountId,
    analysisId: id,
    analysis: text,
    webhookUrl: hasOwnUrl ? receivers.url(receiver) : null,
  });
  return {
    complete: (analysis) => inTransaction(pool, (client) => storeExampleResult(client, resultOf(analysis))),
    failToComplete: async (analysis) => {
      const work = inTransaction(pool, async (client) => {
        await storeExampleResult(client, resultOf(analysis));
        throw new PipelineError("the pipeline's disk is full");
      });
      await work.catch((error) => {
        if (!(error instanceof PipelineError)) throw error;
      });
    },
  };
}
