import type { Command } from "@commander-js/extra-typings";
import { createApiKey } from "../app/create-api-key.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { inColumns } from "../app/terminal-text.ts";
import { UsageError } from "../app/usage-error.ts";
import { scopes } from "../model/scopes.ts";
import { DAY_SECONDS } from "../model/time.ts";
import { listApiKeys, revokeApiKey, type StoredApiKey } from "../store/api-keys.ts";
import { answer } from "./answer.ts";
import { withDatabase } from "./database.ts";
import { parseId, parseName, parseSeconds } from "./options.ts";

const expirySecondsMax = 3_650 * DAY_SECONDS;

export function addKeyCommands(program: Command, context: ProcessContext): void {
  const key = program.command("key").description("make, list and revoke API keys");
  key
    .command("create")
    .description("make an API key and show it this once")
    .option("--account <id>", "for one account; else --staff", parseId)
    .option("--staff", "for support staff, who name the account in every request")
    .requiredOption("--scopes <a,b>", `what it may do, with commas: ${scopes.join(", ")}`)
    .option("--name <name>", "what people call it", parseName)
    .option("--expires-in <time>", "such as 90d (default: never)", parseSeconds(expirySecondsMax))
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        if ((options.account === undefined) === (options.staff === undefined)) {
          throw new UsageError("Give either --account ID or --staff.");
        }
        const { keyId, apiKey } = await createApiKey(pool, config, {
          accountId: options.account ?? null,
          name: options.name ?? null,
          scopes: scopesIn(options.scopes),
          expiresInSeconds: options.expiresIn ?? null,
        });
        const words = inColumns({ id: keyId, "API key": apiKey });
        answer(context, options, { key_id: keyId, api_key: apiKey }, words);
      }),
    );
  key
    .command("list")
    .description("list API keys, the newest first; the keys themselves are stored nowhere")
    .option("--account <id>", "of one account (default: of all, and of staff)", parseId)
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const keys = await listApiKeys(pool, options.account ?? null);
        answer(context, options, keys.map(shown), keys.map(inWords).join("\n") || "There is no API key yet.");
      }),
    );
  key
    .command("revoke")
    .description("make an API key useless from now on")
    .argument("<key-id>", "its id, not the key", parseId)
    .option("--json", "answer in JSON, on a terminal too")
    .action((id, options) =>
      withDatabase(context, async (pool) => {
        const revokedAt = await revokeApiKey(pool, id);
        if (!revokedAt)
          throw new UsageError(`There is no API key ${id}; \`sealpost key list\` shows those there are.`);
        const value = { key_id: id, revoked_at: revokedAt.toISOString() };
        answer(context, options, value, `Revoked since ${value.revoked_at}.`);
      }),
    );
}

/** @throws UsageError for one that there is not. */
function scopesIn(text: string): readonly string[] {
  const asked = [...new Set(text.split(",").map((scope) => scope.trim()))].sort();
  const unknown = asked.find((scope) => !scopes.some((known) => known === scope));
  if (unknown === undefined) return asked;
  throw new UsageError(`There is no scope "${unknown}": choose from ${scopes.join(", ")}.`);
}

function shown(key: StoredApiKey) {
  return {
    key_id: key.id,
    account_id: key.accountId,
    name: key.name,
    class: key.class,
    scopes: [...key.scopes],
    created_at: key.createdAt.toISOString(),
    expires_at: key.expiresAt?.toISOString() ?? null,
    revoked_at: key.revokedAt?.toISOString() ?? null,
    last_used_at: key.lastUsedAt?.toISOString() ?? null,
  };
}

function inWords(key: StoredApiKey): string {
  const state = key.revokedAt
    ? `revoked ${key.revokedAt.toISOString()}`
    : `expires ${key.expiresAt?.toISOString() ?? "never"}`;
  const owner = key.accountId ? `account ${key.accountId}` : "staff";
  return `${key.id}  ${owner}  ${key.name ?? "(no name)"}  ${[...key.scopes].join(",")}  ${state}`;
}
