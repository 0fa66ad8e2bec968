// What runs have published in a space, and users who are members of it or are not.
import { expect } from "vitest";
import { publish } from "../support/installation.ts";
import type { Asked, Json } from "../support/sealpost-api.ts";
import { api, database, documents, runs, stepping } from "./run-world.ts";
import { chain, sequenceAll, stepAll } from "./support/runs.ts";

export type User = { readonly userId: string; readonly key: string };

/** What a run has published. */
export type Published = { readonly analysisId: string; readonly deliveryId: string };

export { api, database, documents };

export const newUser = (): Promise<User> => api.newUser(api.account.accountId);

/** The space's owner is the account's user. */
export async function setRole(spaceId: unknown, { userId }: User, role: string | null): Promise<Asked> {
  const path = `/v1/spaces/${spaceId}/members/${userId}`;
  const asked =
    role === null ? await api.ask("DELETE", path) : await api.ask("PUT", path, { body: { role } });
  expect(asked.status).toBe(200);
  return asked;
}

/** A run of a space that reads a file of this name, which its analysis tells. No endpoint: it can be replayed. */
export async function runIn(spaceId: unknown, file_name: string): Promise<Published> {
  await documents.uploaded({ space_id: spaceId, file_name }, Buffer.from("Read me."));
  const definition = chain({ kind: "documents" }, { kind: "analyze" });
  const { id } = await runs.started(await runs.newWorkflow(spaceId, definition));
  await stepAll(stepping());
  const { delivery_id } = await runs.get(id);
  expect(delivery_id).toMatch(/^[0-9a-f-]{36}$/);
  await sequenceAll(database.pool);
  return { analysisId: id, deliveryId: String(delivery_id) };
}

/** What the account's pipeline publishes is of no space. */
export async function publishOwn(id: string): Promise<Published> {
  const text = JSON.stringify({ id, status: "succeeded" });
  const deliveryId = await publish(database.pool, api.account.accountId, text);
  await sequenceAll(database.pool);
  return { analysisId: id, deliveryId };
}

/** All of the feed, as a key reads it, in pages. */
export async function feedOf(key: string, limit = 2): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let cursor = ""; ; ) {
    const path = `/v1/webhooks/events?limit=${limit}${cursor}`;
    const { status, headers, body } = await api.ask("GET", path, { key });
    expect(status).toBe(200);
    const items = body.items as Json[];
    const next = `&cursor=${body.next_cursor}`;
    if (items.length === 0 && !headers.has("more-behind")) return ids;
    ids.push(...items.map(({ delivery_id }) => String(delivery_id)));
    cursor = next;
  }
}

/** The whole answer, without what names the request, its time and its limits. */
export function told({ status, headers, bytes }: Asked): unknown {
  const named = ["x-request-id", "date", "ratelimit", "etag"];
  return {
    status,
    headers: [...headers].filter(([name]) => !named.includes(name)),
    text: bytes.toString().replaceAll(/"request_id":"[^"]*"/g, '"request_id":"…"'),
  };
}
