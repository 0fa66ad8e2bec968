import { z } from "zod";
import { id, time } from "../api/fields.ts";
import { KEY_CLASSES } from "../base/model/api-keys.ts";
import { ACTOR_KINDS } from "../base/model/audit.ts";
import { AccountName } from "../log/accounts-schema.ts";

export const ApiKey = z
  .object({
    id,
    name: z.string().nullable(),
    class: z
      .enum(KEY_CLASSES)
      .describe("`live` in production, `test` elsewhere: a key works in one of them."),
    scopes: z.array(z.string()),
    user_id: id.nullable().describe("The user that it acts for; null: none, so it cannot reach spaces."),
    created_at: time,
    expires_at: time.nullable().describe("Null: it does not expire."),
    revoked_at: time.nullable(),
    last_used_at: time.nullable().describe("To the minute; null: never."),
  })
  .meta({ id: "ApiKey", description: "A key of the account, without the key itself, which is not stored." });

export const CreatedApiKey = ApiKey.extend({
  api_key: z.string().describe("The key itself, shown only this once."),
}).meta({ id: "CreatedApiKey", description: "A new key of the account." });

export const User = z
  .object({
    id,
    idp_user_id: z.string().describe("Who it is at your identity provider: unique within the account."),
    email: z.string(),
    name: z.string(),
    image_url: z.string().nullable().describe("Of a picture. Null: none."),
    created_at: time,
    disabled_at: time.nullable().describe("From then on no key acts for it. Null: enabled."),
  })
  .meta({ id: "AccountUser", description: "A person of the account, for whom keys can act." });

export const ConsoleSession = z
  .object({
    id,
    viewer: z.object({ id: z.string(), label: z.string() }),
    permissions: z.array(z.string()),
    created_at: time,
    entered_at: time.nullable().describe("Null: nobody has opened its link yet."),
    last_active_at: time.nullable(),
    expires_at: time,
  })
  .meta({ id: "ConsoleSession", description: "A viewer's console session." });

export const AuditEntry = z
  .object({
    id,
    at: time,
    operation: z
      .string()
      .describe(
        "The operation's key; also `accounts.create`, `accounts.quota` and `accounts.move` (from the command " +
          "line) and `console.staff.sign_in`, which is not an operation.",
      ),
    actor: z.object({
      kind: z.enum(ACTOR_KINDS),
      key_id: id.nullable().describe("Null: the command line, or staff without a key."),
      name: z
        .string()
        .nullable()
        .describe("The key's name at that time. Null: it has none, or it is a staff key and yours is not."),
      user: z
        .object({ id, name: z.string() })
        .nullable()
        .describe("The user of the account that the key acts for. Null: none, or it was not a key."),
      viewer: z
        .string()
        .nullable()
        .describe(
          "The viewer of the console session, as the key's owner names them. Null: it was not a console session.",
        ),
    }),
    request_id: z.string().nullable().describe("Null: the command line."),
    details: z.record(z.string(), z.unknown()).describe("What it was about; never a secret."),
  })
  .meta({ id: "AuditEntry", description: "One change to the account, and who made it." });

export const AccountAuditEntry = AuditEntry.extend({
  account: AccountName.nullable().describe("Null: none, for example for a staff key."),
}).meta({ id: "AccountAuditEntry", description: "One change, which account it concerned, and who made it." });

export type ApiKey = z.output<typeof ApiKey>;
export type User = z.output<typeof User>;
export type ConsoleSession = z.output<typeof ConsoleSession>;
export type AuditEntry = z.output<typeof AuditEntry>;
export type AccountAuditEntry = z.output<typeof AccountAuditEntry>;
