import pg, { type ClientBase } from "pg";
import { type Publication, PublishRefusedError, publishAnalyses } from "../../store/publish-call.ts";

/** Why an analysis was not published. */
export type PublicationRefusal = { readonly code: string; readonly message: string };

export type RunPublication = Publication & { readonly traceparent: string | null };

/**
 * Publishes in the transaction; one that is refused leaves it as it was. Returns the delivery's id.
 * @param isLast whatever fails counts as a refusal: trying again did not help
 */
export async function publishInside(
  tx: ClientBase,
  { traceparent, ...publication }: RunPublication,
  isLast: boolean,
): Promise<string | PublicationRefusal> {
  await tx.query("savepoint publication");
  try {
    const [deliveryId] = await publishAnalyses(tx, [publication], traceparent);
    await tx.query("release savepoint publication");
    return deliveryId!;
  } catch (error) {
    const isRefusal = error instanceof PublishRefusedError || (isLast && error instanceof pg.DatabaseError);
    if (!isRefusal) throw error;
    await tx.query("rollback to savepoint publication");
    return error instanceof PublishRefusedError
      ? { code: error.code, message: refusalText(error) }
      : { code: "database_error", message: "The database could not do it. Report it if it goes on." };
  }
}

/** Publishing words its messages for batches; here there is only one. */
function refusalText({ message, remedy }: PublishRefusedError): string {
  const fault = message.replace(/^analysis at index 0: /, "");
  return fault.endsWith(remedy) ? fault : `${fault}. ${remedy}`;
}
