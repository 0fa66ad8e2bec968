import type { Pool } from "pg";
import { z } from "zod";
import { id, moment } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import {
  ACCOUNT_CREATED,
  ACCOUNT_ERASED,
  ACCOUNT_MOVED,
  ACTOR_KINDS,
  QUOTAS_SET,
  SECRETS_RESEALED,
  STAFF_SIGNED_IN,
} from "../base/model/audit.ts";
import { jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../http/pagination.ts";
import { momentOf } from "../log/delivery-filter-api.ts";
import { AccountAuditEntry, AuditEntry } from "./accounts-schema.ts";
import { type AuditFilter, listAuditEntries } from "./audit-sql.ts";

/** What no operation does, with a summary like theirs. */
const BESIDE_OPERATIONS: Readonly<Record<string, string>> = {
  [ACCOUNT_CREATED]: "Add an account",
  [QUOTAS_SET]: "Set an account's quotas",
  [ACCOUNT_MOVED]: "Move an account",
  [ACCOUNT_ERASED]: "Erase an account",
  [STAFF_SIGNED_IN]: "Sign in to support",
  [SECRETS_RESEALED]: "Encrypt secrets with another key",
};

/** Writes its own row. */
const CHECK = "webhooks.endpoint.check";

/** What can stand in the log, each with its summary. */
export function auditedOperations(operations: readonly Operation[]): Readonly<Record<string, string>> {
  const audited = operations.filter(({ key, audit }) => typeof audit === "function" || key === CHECK);
  return { ...BESIDE_OPERATIONS, ...Object.fromEntries(audited.map(({ key, summary }) => [key, summary])) };
}

/** Who changed what. @param others what can stand in the log */
export function auditOperations(pool: Pool, others: readonly Operation[]): readonly Operation[] {
  const writes = others.filter(({ effect }) => effect === "write").map(({ key }) => key);
  const filters = {
    operation: z.enum([...Object.keys(BESIDE_OPERATIONS), ...writes]).optional(),
    actor: z
      .union([z.enum(ACTOR_KINDS), id])
      .optional()
      .describe("A kind of actor, or the id of a key."),
    created_after: moment.optional().describe("At this moment or later."),
    created_before: moment.optional().describe("Before this moment."),
    without_openings: z
      .boolean()
      .optional()
      .describe(
        "Leaves out who opened the console, signed in, or was made to leave: operations `console.…`.",
      ),
  };
  const Query = z.strictObject({ ...filters, ...pageQuery });
  const cursors = createCursors(id);

  async function answer<Item>(
    accountId: string | null,
    query: z.output<typeof Query>,
    itemOf: (entry: AccountAuditEntry) => Item,
  ) {
    const { cursor, limit, ...asked } = query;
    const asWritten = { accountId, ...asked };
    const belowId = cursors.read(cursor, asWritten);
    const filter: AuditFilter = {
      accountId,
      operationKey: asked.operation ?? null,
      actor: asked.actor ?? null,
      createdAfter: asked.created_after === undefined ? null : momentOf(asked.created_after),
      createdBefore: asked.created_before === undefined ? null : momentOf(asked.created_before),
      withoutOpenings: asked.without_openings ?? false,
    };
    const page = await listAuditEntries(pool, filter, belowId, limit);
    return { body: cursors.pageBody(page, asWritten, itemOf), headers: totalHeaders(page) };
  }

  return [
    operationsOf("Audit").read({
      key: "audit.list",
      summary: "List changes",
      description:
        "Who changed what, newest first: every write except publishing, dry runs and repeats of an " +
        "Idempotency-Key, and what was done from the command line. `total` is exact up to 10,000; with " +
        "`Total-Capped: true` it is a lower bound, and a page may hold fewer items than `limit` and still have a " +
        "`next_cursor`. 403 for keys that act for a user: it covers the whole account.",
      path: "/v1/audit",
      scope: "audit:read",
      isOfAccount: true,
      query: Query,
      response: jsonResponse(200, pageOf(AuditEntry), totalCappedHeader),
      handle: async ({ accountId, caller, query }) =>
        await answer(accountId, query, ({ account: _, ...entry }) =>
          caller.isStaff ? entry : withoutStaff(entry),
        ),
    }),
    operationsOf("Support").staffRead({
      key: "accounts.audit.list",
      summary: "List changes of all accounts",
      description:
        "The same across accounts, including changes that concern no account. For staff keys only, without " +
        "X-Account-Id.",
      path: "/v1/accounts/audit",
      scope: "audit:read",
      query: z.strictObject({ account_id: id.optional(), ...filters, ...pageQuery }),
      response: jsonResponse(200, pageOf(AccountAuditEntry), totalCappedHeader),
      handle: async ({ query: { account_id = null, ...query } }) =>
        await answer(account_id, query, (entry) => entry),
    }),
  ];
}

/** What support staff are called is for staff to see. */
function withoutStaff(entry: AuditEntry): AuditEntry {
  const { kind } = entry.actor;
  if (kind !== "staff_key" && kind !== "staff") return entry;
  return { ...entry, actor: { ...entry.actor, name: null, viewer: null } };
}
