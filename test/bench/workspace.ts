// The workspace of an account without an endpoint, by its API: what its runs publish goes nowhere.
import { createHash, randomUUID } from "node:crypto";
import { createAccount, insertUser } from "../../src/accounts/accounts-sql.ts";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { userScopes } from "../../src/base/model/api-keys.ts";
import { SECRETS_KEY } from "../support/installation.ts";
import type { BenchDatabase } from "./database.ts";

const TEXT = Buffer.from("What a document of a few pages says, and says again. ".repeat(100));

export type Ask = (method: string, path: string, body?: object) => Promise<Record<string, unknown>>;

export async function openWorkspace(pool: BenchDatabase["pool"], url: string): Promise<Ask> {
  const { accountId } = await createAccount(pool, "workspace", SECRETS_KEY);
  const person = { idp_user_id: "bench", email: "bench@example.com", name: "Bench", image_url: null };
  const { id: userId } = (await insertUser(pool, { account_id: accountId, ...person }))!;
  const asked = { accountId, userId, name: null, scopes: userScopes, expiresInSeconds: null };
  const { apiKey } = await createApiKey(pool, readConfig({}), asked);
  return async (method, path, body = {}) => {
    const isFile = Buffer.isBuffer(body);
    const answer = await fetch(new URL(path, url), {
      method,
      headers: {
        authorization: `Bearer ${apiKey}`,
        "idempotency-key": randomUUID(),
        "content-type": isFile ? "text/plain" : "application/json",
        ...(isFile && {
          "content-digest": `sha-256=:${createHash("sha256").update(body).digest("base64")}:`,
        }),
      },
      body: isFile ? new Uint8Array(body) : JSON.stringify(body),
    });
    const told = (await answer.json()) as Record<string, unknown>;
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(told)}`);
    return told;
  };
}

/** Of a new space with so many documents, which it analyses. Returns its id. */
export async function publishWorkflow(ask: Ask, trigger: string, documents: number): Promise<unknown> {
  const space_id = (await ask("POST", "/v1/spaces", { name: "bench" })).id;
  const type = "text/plain";
  for (let n = 0; n < documents; n++) {
    const file = { space_id, file_name: `${n}.txt`, content_type: type, file_size: TEXT.length };
    const { id } = await ask("POST", "/v1/documents", file);
    await ask("PUT", `/v1/documents/${id}/content`, TEXT);
  }
  const { id } = await ask("POST", "/v1/workflows", { space_id });
  const node = (kind: string) => {
    const parameters = kind === "hook_trigger" ? { auth_mode: "plain" } : {};
    return { id: kind, kind, name: kind, parameters };
  };
  const definition = {
    nodes: [node(trigger), node("documents"), node("analyze")],
    edges: [
      { from: trigger, to: "documents" },
      { from: "documents", to: "analyze" },
    ],
  };
  await ask("PUT", `/v1/workflows/${id}/draft`, { revision: 1, definition });
  await ask("POST", `/v1/workflows/${id}/publish`);
  return id;
}
