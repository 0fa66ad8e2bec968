import type { Pool } from "pg";
import { z } from "zod";
import { displayName, id } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { USERS_SCOPE } from "../base/model/api-keys.ts";
import {
  IMAGE_URL_CHARS_MAX,
  isImageUrl,
  judgeMailAddress,
  MAIL_ADDRESS_CHARS_MAX,
} from "../base/model/formats.ts";
import { cutPage } from "../base/model/list-page.ts";
import { jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery } from "../http/pagination.ts";
import { invalidRequest } from "../http/problems.ts";
import { User } from "./accounts-schema.ts";
import { countUsers, insertUser, listUsers, type StoredUser } from "./accounts-sql.ts";
import { refusalProblem } from "./api-keys-api.ts";
import { disableAccountUser } from "./api-keys-sql.ts";

const { read, write } = operationsOf("Users");
const path = "/v1/users";
const params = z.strictObject({ user_id: id });

const NewUser = z.strictObject({
  idp_user_id: displayName.describe("Who it is at your identity provider: unique within the account."),
  email: z.string().max(MAIL_ADDRESS_CHARS_MAX).describe("One plain address, `name@example.com`."),
  name: displayName.describe("For people."),
  image_url: z
    .string()
    .max(IMAGE_URL_CHARS_MAX)
    .refine(isImageUrl, { error: "Must be an https URL." })
    .optional()
    .describe("Of a picture. Absent: none."),
});

/** The people of an account, for whom keys can act. They are the account's own: no key that acts for one has these. */
export function userOperations(pool: Pool): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    read({
      key: "users.list",
      summary: "List users",
      description:
        "The account's users, newest first, including disabled ones. 403 for keys that act for a user.",
      path,
      scope: USERS_SCOPE,
      isOfAccount: true,
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(User)),
      handle: async ({ accountId, query }) => {
        const belowId = cursors.read(query.cursor, accountId);
        const [found, total] = await Promise.all([
          listUsers(pool, accountId, belowId, query.limit + 1),
          countUsers(pool, accountId),
        ]);
        const page = { ...cutPage(found, query.limit, (user) => user.id), total };
        return { body: cursors.pageBody(page, accountId, userBody) };
      },
    }),
    write({
      key: "users.create",
      summary: "Add a user",
      description:
        "Adds a user, or enables a disabled one with the same `idp_user_id`, with what this says. Its keys are made " +
        "with `api_keys.create`; those that it had stay revoked. 409 if the account has such a user already. 403 for " +
        "keys that act for a user.",
      method: "POST",
      path,
      scope: USERS_SCOPE,
      isOfAccount: true,
      risk: "reversible",
      body: jsonBody(NewUser),
      // Not the address: the audit log is kept longer than people stay.
      audit: (_, { body: { id: user_id, idp_user_id } }) => ({ user_id, idp_user_id }),
      response: jsonResponse(201, User),
      errors: ["user_exists"],
      handle: async ({ accountId, body, problem }, tx) => {
        const { image_url = null, ...user } = body;
        const judged = judgeMailAddress(body.email);
        if (!judged.isAllowed) throw invalidRequest("body.email", judged.message);
        const added = await insertUser(tx, {
          ...user,
          account_id: accountId,
          email: judged.address,
          image_url: image_url && new URL(image_url).href,
        });
        if (added === null) throw problem("user_exists");
        return { body: userBody(added) };
      },
    }),
    write({
      key: "users.disable",
      summary: "Disable a user",
      description:
        "Revokes every key that acts for the user, at once and for good, and makes none for it until it is enabled " +
        "again (`users.create`). What belongs to the user stays, such as spaces. Disabling it again changes nothing. " +
        "403 if a key of the user has scopes that the caller's own lacks, and for keys that act for a user.",
      method: "DELETE",
      path: `${path}/{user_id}`,
      scope: USERS_SCOPE,
      isOfAccount: true,
      params,
      audit: ({ params }) => ({ user_id: params.user_id }),
      response: jsonResponse(200, User),
      errors: ["not_found", "exceeds_own_key"],
      handle: async ({ accountId, caller, params }, tx) => {
        const disabled = await disableAccountUser(tx, accountId, caller, params.user_id);
        if (disabled.outcome !== "disabled") throw refusalProblem(disabled, "params.user_id");
        return { body: userBody(disabled.user) };
      },
    }),
  ];
}

function userBody({ account_id: _, ...user }: StoredUser): User {
  return user;
}
