import type { Pool } from "pg";
import { z } from "zod";
import { id, moment, time } from "../api/fields.ts";
import { read, staffRead } from "../api/operations.ts";
import {
  ACCOUNT_CREATED,
  ACCOUNT_MOVED,
  ACTOR_KINDS,
  type ActorKind,
  STAFF_SIGNED_IN,
} from "../base/model/audit.ts";
import { isoTime } from "../base/model/time.ts";
import type { Operation } from "../http/operation.ts";
import { jsonResponse } from "../http/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../http/pagination.ts";
import { AccountName } from "../log/accounts-schema.ts";
import { momentOf } from "../log/delivery-filter-api.ts";
import { type AuditFilter, listAuditEntries, type StoredAuditEntry } from "./audit-sql.ts";

const members = {
  id,
  at: time,
  operation: z
    .string()
    .describe(
      "The operation's key; also `accounts.create` and `accounts.move` (from the command line) and " +
        "`console.staff.sign_in`, which no operation does.",
    ),
  actor: z.object({
    kind: z.enum(ACTOR_KINDS),
    key_id: id.nullable().describe("Null: the command line, or staff without a key."),
    name: z
      .string()
      .nullable()
      .describe("The key's name at that time. Null: it has none, or it is staff's and your key is not."),
    user: z
      .object({ id, name: z.string() })
      .nullable()
      .describe("The user of the account that the key acts for. Null: none, or it was no key."),
    viewer: z
      .string()
      .nullable()
      .describe(
        "Whose session of the console it was, as the key's owner calls them. Null: it was no session.",
      ),
  }),
  request_id: z.string().nullable().describe("Null: the command line."),
  details: z.record(z.string(), z.unknown()).describe("What it was about; never a secret."),
};

export const AuditEntry = z
  .object(members)
  .meta({ id: "AuditEntry", description: "One change to the account, and who made it." });

export const AccountAuditEntry = z
  .object({
    ...members,
    account: AccountName.nullable().describe("Null: it concerned none, such as a staff key."),
  })
  .meta({ id: "AccountAuditEntry", description: "One change, whose account it concerned, and who made it." });

/** What no operation does. */
const BESIDE_OPERATIONS = [ACCOUNT_CREATED, ACCOUNT_MOVED, STAFF_SIGNED_IN] as const;

/** What can stand in the log. */
export function auditedOperations(operations: readonly Operation[]): readonly string[] {
  const audited = operations.filter(({ audit }) => typeof audit === "function");
  return [...BESIDE_OPERATIONS, ...audited.map(({ key }) => key)];
}

export type AuditDependencies = {
  readonly pool: Pool;
};

/** Who changed what. @param others what can stand in the log */
export function auditOperations(
  { pool }: AuditDependencies,
  others: readonly Operation[],
): readonly Operation[] {
  const writes = others.filter(({ effect }) => effect === "write").map(({ key }) => key);
  const filters = {
    operation: z.enum([...BESIDE_OPERATIONS, ...writes]).optional(),
    actor: z
      .union([z.enum(ACTOR_KINDS), id])
      .optional()
      .describe("A kind of actor, or the id of a key."),
    created_after: moment.optional().describe("At this moment or later."),
    created_before: moment.optional().describe("Before this moment."),
  };
  const Query = z.strictObject({ ...filters, ...pageQuery });
  const cursors = createCursors(id);

  async function answer<Item>(
    accountId: string | null,
    query: z.output<typeof Query>,
    itemOf: (entry: StoredAuditEntry) => Item,
  ) {
    const { cursor, limit, ...asked } = query;
    const asWritten = { accountId, ...asked };
    const belowId = cursors.read(cursor, asWritten);
    const filter: AuditFilter = {
      accountId,
      operationKey: asked.operation ?? null,
      ...actorFilter(asked.actor ?? null),
      createdAfter: asked.created_after === undefined ? null : momentOf(asked.created_after),
      createdBefore: asked.created_before === undefined ? null : momentOf(asked.created_before),
    };
    const page = await listAuditEntries(pool, filter, belowId, limit);
    return { body: cursors.pageBody(page, asWritten, itemOf), headers: totalHeaders(page) };
  }

  return [
    read({
      key: "audit.list",
      tag: "Audit",
      summary: "List changes",
      description:
        "Who changed what, newest first: every write but publishing, dry runs and repeats of an " +
        "Idempotency-Key, and what was done from the command line. `total` is exact up to 10,000; with " +
        "`Total-Capped: true` it is a lower bound, and a page may hold fewer items than `limit` and still have a " +
        "`next_cursor`. 403 for keys that act for a user: it tells of the whole account.",
      method: "GET",
      path: "/v1/audit",
      scope: "audit:read",
      isOfAccount: true,
      query: Query,
      response: jsonResponse(200, pageOf(AuditEntry), totalCappedHeader),
      handle: async ({ accountId, caller, query }) =>
        await answer(accountId, query, (entry) => entryBody(entry, caller.isStaff)),
    }),
    staffRead({
      key: "accounts.audit.list",
      tag: "Support",
      summary: "List changes of all accounts",
      description:
        "The same across accounts, with what concerns none. For staff keys alone, which name no account here.",
      method: "GET",
      path: "/v1/accounts/audit",
      scope: "audit:read",
      query: z.strictObject({ account_id: id.optional(), ...filters, ...pageQuery }),
      response: jsonResponse(200, pageOf(AccountAuditEntry), totalCappedHeader),
      handle: async ({ query: { account_id = null, ...query } }) =>
        await answer(account_id, query, (entry) => ({
          ...entryBody(entry, true),
          account: accountOf(entry),
        })),
    }),
  ];
}

function accountOf({ accountId, accountName }: StoredAuditEntry): z.output<typeof AccountName> | null {
  return accountId === null ? null : { id: accountId, name: accountName ?? "" };
}

/** A kind of actor, or the id of a key; null: any. */
export function actorFilter(actor: string | null): Pick<AuditFilter, "actorKind" | "keyId"> {
  const isKind = ACTOR_KINDS.some((kind) => kind === actor);
  return { actorKind: isKind ? (actor as ActorKind) : null, keyId: isKind ? null : actor };
}

/** What support staff are called is for staff to see. */
export function entryBody(entry: StoredAuditEntry, isForStaff: boolean): z.output<typeof AuditEntry> {
  const { actorKind: kind, actorName, viewer } = entry;
  const isHidden = (kind === "staff_key" || kind === "staff") && !isForStaff;
  return {
    id: entry.id,
    at: isoTime(entry.atMs),
    operation: entry.operationKey,
    actor: {
      kind,
      key_id: entry.keyId,
      name: isHidden ? null : actorName,
      user: entry.user,
      viewer: isHidden ? null : viewer,
    },
    request_id: entry.requestId,
    details: entry.details,
  };
}
