import { type Command, InvalidArgumentError } from "@commander-js/extra-typings";
import type { ClientBase } from "pg";
import { changeAudited } from "../app/command-line-changes.ts";
import { requireAccount, withDatabase } from "../app/database.ts";
import { inColumns, printResult } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { USER_CREATED } from "../model/audit.ts";
import { judgeMailAddress } from "../model/mail-address.ts";
import { insertUser, listUsers, type StoredUser } from "../store/users.ts";
import { parseId, parseName } from "./options.ts";

const IMAGE_URL_CHARS_MAX = 2_048;

export function addUserCommands(program: Command, context: ProcessContext): void {
  const user = program.command("user").description("manage the users of an account, for whom keys can act");
  user
    .command("create")
    .description("add a user to an account")
    .requiredOption("--account <id>", "account that the user belongs to", parseId)
    .requiredOption("--idp-user-id <id>", "id of the user at the account's identity provider", parseName)
    .requiredOption("--email <address>", "mail address", parseAddress)
    .requiredOption("--name <name>", "display name", parseName)
    .option("--image-url <url>", "https URL of a picture", parseImageUrl)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const { account: accountId, idpUserId, email, name, imageUrl = null } = options;
        await requireAccount(pool, accountId);
        const create = async (tx: ClientBase) => {
          const created = await insertUser(tx, { accountId, idpUserId, email, name, imageUrl });
          if (created !== null) return created;
          throw new UsageError(
            `Account ${accountId} has a user with that --idp-user-id already; \`sealpost user list\` lists all users.`,
          );
        };
        // Not the address: the audit log is kept longer than people stay.
        const told = ({ id }: StoredUser) => ({
          accountId,
          details: { user_id: id, idp_user_id: idpUserId },
        });
        const created = await changeAudited(pool, USER_CREATED, create, told);
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
}

function parseAddress(text: string): string {
  const judged = judgeMailAddress(text);
  if (judged.isAllowed) return judged.address;
  throw new InvalidArgumentError(judged.message);
}

function parseImageUrl(text: string): string {
  if (text.length <= IMAGE_URL_CHARS_MAX && URL.canParse(text) && new URL(text).protocol === "https:") {
    return new URL(text).href;
  }
  throw new InvalidArgumentError(`It must be an https URL of at most ${IMAGE_URL_CHARS_MAX} characters.`);
}

function userFields(user: StoredUser) {
  return {
    user_id: user.id,
    account_id: user.accountId,
    idp_user_id: user.idpUserId,
    email: user.email,
    name: user.name,
    image_url: user.imageUrl,
    created_at: user.createdAt.toISOString(),
  };
}

function userText(user: StoredUser): string {
  return `${user.id}  account ${user.accountId}  ${user.idpUserId}  ${user.name}  ${user.email}`;
}
