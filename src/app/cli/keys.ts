import { type Command, InvalidArgumentError } from "commander";
import type { Pool } from "pg";
import {
  disableUser,
  findUser,
  insertUser,
  listUsers,
  type StoredUser,
} from "../../accounts/accounts-sql.ts";
import { type ListedApiKey, listApiKeys, revokeApiKey } from "../../accounts/api-keys-sql.ts";
import { readCell } from "../../base/database/cells.ts";
import {
  ACCOUNTS_OWN_SCOPES,
  API_KEY_LIFETIME_SECONDS_MAX,
  STAFF_SCOPE,
  scopes,
} from "../../base/model/api-keys.ts";
import { IMAGE_URL_CHARS_MAX, isImageUrl, judgeMailAddress } from "../../base/model/formats.ts";
import { findMovedTo } from "../../cells/moves-sql.ts";
import { changeAudited, issueApiKey } from "../create-api-key.ts";
import { requireAccount, withDatabase } from "../database.ts";
import { inColumns, printResult, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { parseId, parseName, parseSeconds } from "./options.ts";

export function addUserCommands(program: Command, context: ProcessContext): void {
  const user = program.command("user").description("manage the users of an account, for whom keys can act");
  user
    .command("create")
    .description("add a user to an account, or enable a disabled one of that --idp-user-id")
    .requiredOption("--account <id>", "account that the user belongs to", parseId)
    .requiredOption("--idp-user-id <id>", "id of the user at the account's identity provider", parseName)
    .requiredOption("--email <address>", "mail address", parseAddress)
    .requiredOption("--name <name>", "display name", parseName)
    .option("--image-url <url>", "https URL of a picture", parseImageUrl)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const {
          account: accountId,
          idpUserId: idp_user_id,
          email,
          name,
          imageUrl: image_url = null,
        } = options;
        await requireAccount(pool, accountId);
        const created = await changeAudited(pool, "users.create", async (tx) => {
          const done = await insertUser(tx, { account_id: accountId, idp_user_id, email, name, image_url });
          if (done === null) {
            const known = `Account ${accountId} already has a user with that --idp-user-id`;
            throw new UsageError(`${known}; \`sealpost user list\` lists all users.`);
          }
          // Not the address: the audit log is kept longer than people stay.
          return { done, accountId, details: { user_id: done.id, idp_user_id } };
        });
        printResult(context, options, userFields(created), inColumns({ user: created.id }));
      }),
    );
  user
    .command("list")
    .description("list users, newest first")
    .option("--account <id>", "only of this account (default: all)", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const users = await listUsers(pool, options.account ?? null);
        const text = users.map(userText).join("\n");
        printResult(context, options, users.map(userFields), text || "No users yet.");
      }),
    );
  user
    .command("disable")
    .description("disable a user: every key that acts for it is revoked at once")
    .argument("<user-id>", "the id of the user", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((id, options) =>
      withDatabase(context, async (pool) => {
        const disabled = await changeAudited(pool, "users.disable", async (tx) => {
          const done = await disableUser(tx, id);
          if (done === null) throw unknownUser(id);
          return { done, accountId: done.account_id, details: { user_id: id } };
        });
        printResult(
          context,
          options,
          userFields(disabled),
          `User ${id} is disabled, and its keys are revoked.`,
        );
      }),
    );
}

function parseAddress(text: string): string {
  const judged = judgeMailAddress(text);
  if (judged.isAllowed) return judged.address;
  throw new InvalidArgumentError(judged.message);
}

function parseImageUrl(text: string): string {
  if (isImageUrl(text)) return new URL(text).href;
  throw new InvalidArgumentError(`It must be an https URL of at most ${IMAGE_URL_CHARS_MAX} characters.`);
}

function userFields({ id: user_id, ...user }: StoredUser) {
  return { user_id, ...user };
}

function userText(user: StoredUser): string {
  const state = user.disabled_at === null ? "" : `  disabled ${user.disabled_at}`;
  return `${user.id}  account ${user.account_id}  ${user.idp_user_id}  ${user.name}  ${user.email}${state}`;
}

export function addKeyCommands(program: Command, context: ProcessContext): void {
  const key = program.command("key").description("manage API keys");
  key
    .command("create")
    .description("issue an API key; it is shown only once")
    .option("--account <id>", "account that the key belongs to; or use --user or --staff", parseId)
    .option("--user <id>", "user that the key acts for, in the user's account", parseId)
    .option("--staff", "key for support staff, who name the account in each request")
    .requiredOption("--scopes <a,b>", `comma-separated: ${scopes.join(", ")}`)
    .option("--name <name>", "display name", parseName)
    .option(
      "--expires-in <time>",
      "lifetime, such as 90d (default: unlimited)",
      parseSeconds(API_KEY_LIFETIME_SECONDS_MAX),
    )
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const owners = [options.account, options.user, options.staff].filter((one) => one !== undefined);
        if (owners.length !== 1) throw new UsageError("Use one of --account ID, --user ID and --staff.");
        const accountId = options.user === undefined ? options.account : await accountOf(pool, options.user);
        const keyScopes = parseScopes(options.scopes);
        if (keyScopes.includes(STAFF_SCOPE) && options.staff === undefined) {
          throw new UsageError(`The scope ${STAFF_SCOPE} works across accounts: use it with --staff.`);
        }
        const ownScope = keyScopes.find((scope) => ACCOUNTS_OWN_SCOPES.has(scope));
        if (ownScope !== undefined && options.user !== undefined) {
          throw new UsageError(
            `The scope ${ownScope} is for the whole account, not for one user: use it with --account.`,
          );
        }
        const { keyId, apiKey } = await issueApiKey(pool, config, {
          accountId: accountId ?? null,
          userId: options.user ?? null,
          name: options.name ?? null,
          scopes: keyScopes,
          expiresInSeconds: options.expiresIn ?? null,
        });
        const text = inColumns({ id: keyId, "API key": apiKey });
        printResult(context, options, { key_id: keyId, api_key: apiKey }, text);
      }),
    );
  key
    .command("list")
    .description("list API keys, newest first; the keys themselves are not stored")
    .option("--account <id>", "only of this account (default: all keys, staff included)", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const keys = await listApiKeys(pool, options.account ?? null);
        const cell = await readCell(pool);
        const value = keys.map(({ id, ...key }) => ({ key_id: id, ...key, cell }));
        const text = keys.map(keyText).join("\n");
        printResult(context, options, value, text || "No API keys yet.");
      }),
    );
  key
    .command("revoke")
    .description("revoke an API key at once")
    .argument("<key-id>", "the id of the key, not the key itself", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((id, options) =>
      withDatabase(context, async (pool) => {
        const { revokedAt, movedTo } = await changeAudited(pool, "api_keys.revoke", async (tx) => {
          const revoked = await revokeApiKey(tx, id);
          if (revoked === null)
            throw new UsageError(`There is no API key ${id}; \`sealpost key list\` lists all keys.`);
          const { accountId, revokedAt } = revoked;
          const movedTo = accountId === null ? null : await findMovedTo(tx, accountId);
          return { done: { revokedAt, movedTo }, accountId, details: { key_id: id } };
        });
        const value = { key_id: id, revoked_at: revokedAt.toISOString() };
        printResult(context, options, value, `Revoked at ${value.revoked_at}.`);
        if (movedTo !== null) {
          context.stderr.write(
            `Its account is in the cell "${movedTo}", or on its way there: revoke the key there, too.\n`,
          );
        }
      }),
    );
}

/** @throws UsageError for an unknown user */
async function accountOf(pool: Pool, userId: string): Promise<string> {
  const user = await findUser(pool, userId);
  if (user !== null && user.disabled_at === null) return user.account_id;
  if (user !== null)
    throw new UsageError(`User ${userId} is disabled; \`sealpost user create\` enables it again.`);
  throw unknownUser(userId);
}

function unknownUser(id: string): UsageError {
  return new UsageError(`There is no user ${id}; \`sealpost user list\` lists all users.`);
}

/** @throws UsageError for an unknown scope */
function parseScopes(text: string): readonly string[] {
  const chosen = [...new Set(text.split(",").map((scope) => scope.trim()))].sort();
  const unknown = chosen.find((scope) => !scopes.some((known) => known === scope));
  if (unknown === undefined) return chosen;
  throw new UsageError(`Unknown scope "${unknown}": use ${scopes.join(", ")}.`);
}

function keyText(key: ListedApiKey): string {
  const state = key.revoked_at ? `revoked ${key.revoked_at}` : `expires ${key.expires_at ?? "never"}`;
  const user = key.user_id ? ` user ${key.user_id}` : "";
  const owner = key.account_id ? `account ${key.account_id}${user}` : "staff";
  return `${key.id}  ${owner}  ${key.name ?? "(unnamed)"}  ${key.scopes.join(",")}  ${state}`;
}
