import type { ClientBase } from "pg";
import type { StoredNodeRun } from "../store/node-runs.ts";
import { insertRunEvents } from "../store/run-events.ts";
import { type PublicationRefusal, publishInside } from "../store/run-publication.ts";
import { type RunError, setRunEnd, setRunStatus } from "../store/runs.ts";
import type { ClaimedStep, StepFacts } from "../store/steps.ts";
import { summarizeRun } from "./run-summary.ts";
import type { StepEnd } from "./step-end.ts";

export type RunEnding = {
  readonly step: ClaimedStep;
  readonly facts: StepFacts;
  readonly nodeRuns: readonly StoredNodeRun[];
  /** Null: it has succeeded. */
  readonly error: RunError | null;
  /** Whether whatever goes wrong ends the run all the same. */
  readonly isLastTry: boolean;
};

/**
 * Ends a run that is locked, and publishes its analysis in the same transaction: both, or neither. Where publishing
 * refuses it the run has failed, and the least that tells so is published; if that is refused, too, the run says it.
 */
export async function endRun(tx: ClientBase, ending: RunEnding): Promise<StepEnd> {
  const { step, facts } = ending;
  const { accountId, runId } = step;
  const published = await publish(tx, ending, await analysisOf(tx, ending), facts.webhookUrl);
  if (typeof published === "string") return await end(tx, ending, ending.error, published);
  const error = ending.error ?? {
    code: "publish_refused",
    message: `The run's analysis could not be published: ${published.message}`,
    details: null,
  };
  // What cannot go to the run's own URL is for the account's endpoint.
  const webhookUrl = published.code === "target_refused" ? null : facts.webhookUrl;
  const least = { id: runId, status: "failed", workflow_id: facts.workflowId, error_code: error.code };
  const told = await publish(tx, ending, least, webhookUrl);
  const refusals = [published, ...(typeof told === "string" ? [] : [told])];
  const details = { ...error.details, publication: refusals };
  return await end(tx, ending, { ...error, details }, typeof told === "string" ? told : null);

  function publish(
    client: ClientBase,
    { isLastTry }: RunEnding,
    analysis: object,
    url: string | null,
  ): Promise<string | PublicationRefusal> {
    const { traceparent } = facts;
    const publication = { accountId, analysis: JSON.stringify(analysis), webhookUrl: url, traceparent };
    return publishInside(client, publication, isLastTry);
  }
}

async function analysisOf(tx: ClientBase, { step, facts, nodeRuns, error }: RunEnding): Promise<object> {
  const { accountId, runId } = step;
  const { workflowId: workflow_id, definition } = facts;
  if (error !== null) {
    return { id: runId, status: "failed", workflow_id, error_code: error.code, error_message: error.message };
  }
  const result = await summarizeRun(tx, { accountId, runId, definition, nodeRuns });
  return { id: runId, status: "succeeded", workflow_id, result };
}

async function end(
  tx: ClientBase,
  { step: { accountId, runId } }: RunEnding,
  error: RunError | null,
  deliveryId: string | null,
): Promise<StepEnd> {
  await setRunStatus(tx, accountId, runId, error === null ? "SUCCEEDED" : "FAILED");
  await setRunEnd(tx, accountId, runId, { error, deliveryId });
  const kind = error === null ? "run.succeeded" : "run.failed";
  const details = error === null ? {} : { details: { error_code: error.code } };
  await insertRunEvents(tx, accountId, runId, [{ kind, nodeId: null, ...details }]);
  return error === null ? "run_succeeded" : "run_failed";
}
