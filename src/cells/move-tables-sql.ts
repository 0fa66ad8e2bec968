import type { ChildRows, DeletedTable, RowsTable } from "../base/database/account-rows.ts";
import { ACCOUNT_ERASED } from "../base/model/audit.ts";

/** A table of which a moved account's rows go along. */
export type MovedTable = RowsTable & {
  /** SQL for the bytes of a row `t`, where one may be large. */
  readonly bytes?: string;
  /** Columns that are not copied as they are, with the SQL of what is. */
  readonly instead?: Readonly<Record<string, string>>;
};

export type ChildTable = MovedTable & ChildRows;

export type AccountTable = MovedTable & DeletedTable<ChildTable>;

/**
 * Copied page by page while the account is closed at the source and not there yet at the target: nothing that works on
 * these rows by itself may touch those of an account that is unknown or has moved.
 */
export const LOG_TABLES: readonly AccountTable[] = [
  { name: "analyses", key: ["id"] },
  {
    name: "deliveries",
    key: ["id"],
    rowsMax: 200,
    children: [
      { name: "attempts", parentId: "delivery_id", key: ["run", "number"] },
      {
        name: "bodies",
        parentId: "delivery_id",
        key: [],
        // Of a small one it is known without reading it; a text of 8 MiB may be stored in a hundredth of that.
        bytes:
          "case when pg_column_size(t.analysis) < 2000 then 2000 else octet_length(t.analysis::text) end",
        // Its place in the feed is copied; with a serial it would get another.
        instead: { serial: "null" },
      },
    ],
  },
  { name: "forgetting", key: ["delivery_id"] },
  { name: "feed", key: ["position"] },
  { name: "feed_consumers", key: ["name"] },
  { name: "parked_deliveries", key: ["delivery_id"] },
  {
    name: "replays",
    key: ["id"],
    rowsMax: 1,
    children: [{ name: "replay_items", parentId: "replay_id", key: ["position"] }],
  },
  { name: "audit_log", key: ["id"] },
  { name: "write_bytes", key: ["user_id", "day"] },
  { name: "idempotency_keys", key: ["key_id", "idempotency_key"], bytes: "octet_length(t.body)" },
  { name: "notices", key: ["id"] },
  { name: "notice_mails", key: ["id"] },
  { name: "erasures", key: ["analysis_id"] },
];

export const API_KEYS: AccountTable = { name: "api_keys", key: ["id"] };

/** Copied in the one transaction in which the account appears. Small, and in the order of their references. */
export const OPENING_TABLES: readonly AccountTable[] = [
  { name: "accounts", accountId: "id", key: [], instead: { moved_to: "null", is_full: "false" } },
  { name: "users", key: ["id"] },
  API_KEYS,
  { name: "endpoints", key: ["id"] },
  { name: "signing_secrets", key: ["id"] },
  { name: "quotas", key: ["quota"] },
  { name: "notice_recipients", key: ["id"] },
  { name: "endpoint_health", key: [] },
  { name: "endpoint_certificates", key: [] },
  { name: "answered_lanes", key: ["lane"] },
  { name: "receivers", key: ["origin"] },
  { name: "refusals", key: ["url"] },
];

/** Not moved (a test says why), but deleted with the rest. Their keys need not tell rows apart. */
const NOT_MOVED_BUT_DELETED: readonly AccountTable[] = [
  { name: "console_sessions", key: ["id"] },
  { name: "late_attempts", key: ["ended_at"] },
  { name: "activity", key: ["bucket", "target_host"] },
  { name: "published", key: ["day"] },
];

/** What a move that is called off has brought. */
export const ARRIVED_TABLES: readonly AccountTable[] = [...LOG_TABLES, ...NOT_MOVED_BUT_DELETED];

/** What stays at the source when the rest is deleted: with these it tells callers where to go. */
const KEPT: readonly string[] = ["accounts", API_KEYS.name];

/** What is deleted there. */
export const LEFT_TABLES: readonly AccountTable[] = [
  ...ARRIVED_TABLES,
  ...OPENING_TABLES.filter(({ name }) => !KEPT.includes(name)),
];

/** Of an account that is erased, what makes attempts. They are everybody's, and found by reading all that is open. */
export const WAITING_TABLES: readonly DeletedTable[] = [
  { name: "open_deliveries", key: ["delivery_id"], rowsMax: 5_000, isContended: true },
  { name: "held_deliveries", key: ["delivery_id"], isContended: true },
  ...LOG_TABLES.filter(({ name }) => name === "parked_deliveries" || name === "replays"),
];

/** And what else goes. The rows that say that it was erased stay. */
export const ERASED_TABLES: readonly DeletedTable[] = [...LEFT_TABLES, API_KEYS].map((table) =>
  table.name === "audit_log" ? { ...table, only: `operation_key <> '${ACCOUNT_ERASED}'` } : table,
);
