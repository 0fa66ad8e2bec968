import type { ClientBase } from "pg";
import type { EventName } from "../model/events.ts";
import { publishExample } from "../store/publications.ts";
import { exampleAnalysis } from "../webhook/envelope.ts";

export type TestEvent = { readonly analysisId: string; readonly deliveryId: string };

/**
 * Publishes an example for the account's endpoint in the caller's transaction: an analysis like any other, readable,
 * in the log, and replayable.
 *
 * @param newId gives a new UUID
 */
export async function publishTestEvent(
  client: ClientBase,
  accountId: string,
  event: EventName,
  newId: () => string,
): Promise<TestEvent> {
  const analysisId = `example-${newId()}`;
  const analysis = exampleAnalysis(event, analysisId);
  const [deliveryId] = await publishExample(client, { accountId, analysis, webhookUrl: null });
  if (deliveryId === undefined) throw new Error("publishing one example gave no delivery");
  return { analysisId, deliveryId };
}
