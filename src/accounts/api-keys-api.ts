import { randomBytes } from "node:crypto";
import type { Pool } from "pg";
import { z } from "zod";
import { displayName, id } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import type { DomainCode } from "../api/problems.ts";
import {
  ACCOUNTS_OWN_SCOPES,
  API_KEY_LIFETIME_SECONDS_MAX,
  accountScopes,
  type KeyClass,
  USERS_SCOPE,
} from "../base/model/api-keys.ts";
import { digestSecret, formatApiKey } from "../http/api-keys.ts";
import { emptyResponse, jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery } from "../http/pagination.ts";
import { type FieldError, invalidRequest, Problem } from "../http/problems.ts";
import { ApiKey, CreatedApiKey } from "./accounts-schema.ts";
import {
  ACCOUNT_KEYS_MAX,
  createAccountKey,
  type KeyRefusal,
  listAccountKeys,
  revokeAccountKey,
} from "./api-keys-sql.ts";

const { read, write } = operationsOf("API keys");
const path = "/v1/api-keys";
const params = z.strictObject({ key_id: id });

const NewApiKey = z.strictObject({
  name: displayName.describe("Who or what uses it: the audit log shows it next to what the key changes."),
  scopes: z
    .array(z.enum(accountScopes))
    .min(1)
    .max(accountScopes.length)
    .describe("What it may do: scopes of the caller's own key only."),
  user_id: id
    .optional()
    .describe(`The user that it acts for: any, with \`${USERS_SCOPE}\`. Absent: the caller's own, or none.`),
  expires_in_seconds: z
    .int()
    .min(1)
    .max(API_KEY_LIFETIME_SECONDS_MAX)
    .optional()
    .describe("Its lifetime: not beyond the caller's own key. Absent: it expires with that key."),
});

export type ApiKeyDependencies = {
  readonly pool: Pool;
  /** Of the keys that the API makes: those of this environment. */
  readonly apiKeyBrand: string;
  readonly apiKeyClass: KeyClass;
};

/** An account's keys, managed with one of them, or with a staff key in its name; a user's with one of that user. */
export function apiKeyOperations({
  pool,
  apiKeyBrand,
  apiKeyClass,
}: ApiKeyDependencies): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    read({
      key: "api_keys.list",
      summary: "List API keys",
      description:
        "The account's keys, newest first, including revoked and expired ones. With a key that acts for a user: " +
        "that user's keys.",
      path,
      scope: "keys:write",
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(ApiKey)),
      handle: async ({ accountId, caller, query }) => {
        const belowId = cursors.read(query.cursor, accountId);
        const page = await listAccountKeys(pool, accountId, caller.userId, belowId, query.limit);
        return { body: cursors.pageBody(page, accountId, (key) => key) };
      },
    }),
    write({
      key: "api_keys.create",
      summary: "Issue an API key",
      description:
        "Creates a key of the account and shows it only once; a repeat with the same Idempotency-Key shows it " +
        "again, for a day. It cannot have a scope that the caller's own key lacks, nor outlive that key: 403. It " +
        "acts for the same user as that key; if that acts for none, for `user_id`, or for none. " +
        `An account can have at most ${ACCOUNT_KEYS_MAX} keys that are valid or were created ` +
        "within a day; so can each user.",
      method: "POST",
      path,
      scope: "keys:write",
      holdsSecret: true,
      body: jsonBody(NewApiKey),
      audit: (_, { body: { id: key_id, name, scopes, user_id, expires_at } }) => ({
        key_id,
        name,
        scopes,
        user_id,
        expires_at,
      }),
      response: jsonResponse(201, CreatedApiKey),
      errors: ["exceeds_own_key", "too_many_api_keys"],
      handle: async ({ accountId, caller, body }, tx) => {
        const { user_id: userId = null } = body;
        if (userId !== null && caller.userId === null) {
          const own = body.scopes.find((scope) => ACCOUNTS_OWN_SCOPES.has(scope));
          if (own !== undefined)
            throw invalidRequest("body.scopes", `No key that acts for a user has ${own}.`);
        } else if (userId !== null && userId !== caller.userId) {
          throw invalidRequest("body.user_id", "Your own key acts for another user.");
        }
        const text = formatApiKey(apiKeyBrand, apiKeyClass, randomBytes(32));
        const created = await createAccountKey(tx, accountId, caller, {
          digest: digestSecret(text),
          class: apiKeyClass,
          name: body.name,
          scopes: [...new Set(body.scopes)].sort(),
          expiresInSeconds: body.expires_in_seconds ?? null,
          userId,
        });
        if (created.outcome !== "created") throw refusalProblem(created, "body.scopes");
        return { body: { ...created.key, api_key: text } };
      },
    }),
    write({
      key: "api_keys.revoke",
      summary: "Revoke an API key",
      description:
        "Revokes a key of the account, at once and for good. It may be the caller's own: then this is its last " +
        "request. 403 for a key with scopes that the caller's own lacks. A key that acts for a user does not find " +
        "other users' keys, nor the account's. Revoking it again changes nothing.",
      method: "DELETE",
      path: `${path}/{key_id}`,
      scope: "keys:write",
      params,
      audit: ({ params }) => ({ key_id: params.key_id }),
      response: emptyResponse(),
      errors: ["not_found", "exceeds_own_key"],
      handle: async ({ accountId, caller, params }, tx) => {
        const revoked = await revokeAccountKey(tx, accountId, caller, params.key_id);
        if (revoked.outcome !== "revoked") throw refusalProblem(revoked, "params.key_id");
      },
    }),
  ];
}

/** @param place of the request's field that names the scopes, or the key that has them */
export function refusalProblem(refusal: KeyRefusal, place: string): Problem {
  switch (refusal.outcome) {
    // As it would be refused now.
    case "caller_ended":
      return new Problem("unauthorized");
    case "exceeds_caller": {
      const errors: FieldError[] = refusal.scopes.map((scope) => {
        return { path: place, message: `Your own key lacks the scope ${scope}.` };
      });
      if (refusal.outlives) {
        errors.push({ path: "body.expires_in_seconds", message: "Your own key expires before that." });
      }
      return new Problem("exceeds_own_key" satisfies DomainCode, { errors });
    }
    case "not_found":
      return new Problem("not_found");
    case "unknown_user":
      return invalidRequest("body.user_id", "The account has no such user, or it is disabled.");
    case "too_many":
      return new Problem("too_many_api_keys" satisfies DomainCode);
    default:
      throw new Error(`Unknown refusal ${JSON.stringify(refusal satisfies never)}`);
  }
}
