// What the checker has to miss: the service's guards, each with what stands in its place in a broken twin.
import type { Change } from "../support/broken-twins.ts";
import type { Model } from "./checker.ts";

export type Guard = {
  readonly model: Model;
  readonly name: string;
  /** The SQL function that the only change is of; null: changes are of the program. */
  readonly sql: string | null;
  readonly changes: readonly Change[];
};

export const GUARDS: readonly Guard[] = [
  {
    model: "idempotency",
    name: "the lock of an Idempotency-Key",
    sql: "claim_idempotency_keys",
    changes: [
      { path: "sql/0009_accounts.sql", text: "pg_try_advisory_xact_lock(named.lock)", without: "true" },
    ],
  },
  {
    model: "idempotency",
    name: "the comparison of requests",
    sql: null,
    changes: [
      {
        path: "src/http/idempotent-write.ts",
        text: "if (!claim.fingerprint.equals(found.fingerprint))",
        without: "if (false)",
      },
    ],
  },
  {
    model: "analysis",
    name: "the comparison of texts",
    sql: "publish_each",
    changes: [
      { path: "sql/0010_delivery.sql", text: "when not known.is_same then", without: "when false then" },
    ],
  },
  {
    model: "analysis",
    name: "the commit before the answer",
    sql: null,
    changes: [
      {
        path: "src/delivery/analyses-sql.ts",
        text: "onConnection(database, (client) =>",
        without: `(async (work) => {
      const client = await (database as Pool).connect();
      await client.query("begin");
      const end = () => client.query("commit").then(() => client.release(), () => client.release(true));
      setTimeout(end, 200);
      return await work(client);
    })((client) =>`,
      },
    ],
  },
  {
    model: "draft",
    name: "the comparison of revisions",
    sql: null,
    changes: [
      {
        path: "src/workspace/operations/workflows.ts",
        text: "if (revision !== draft_revision)",
        without: "if (false)",
      },
      {
        path: "src/workspace/store/workflows.ts",
        text: "where account_id = $1 and id = $2 and draft_revision = $3`",
        without: "where account_id = $1 and id = $2 and $3::integer > 0`",
      },
    ],
  },
  {
    model: "draft",
    name: "the revision that is published",
    sql: null,
    changes: [
      {
        path: "src/workspace/operations/workflows.ts",
        text: "if ((body.revision ?? draft_revision) !== draft_revision)",
        without: "if (false)",
      },
    ],
  },
  {
    model: "pause",
    name: "the claim's look at the pause",
    sql: null,
    changes: [
      { path: "src/delivery/claim-sql.ts", text: "else if (row.isPaused)", without: "else if (false)" },
    ],
  },
  {
    model: "feed",
    name: "the wait for whoever may still commit",
    sql: "sequence_events",
    changes: [
      {
        path: "sql/0012_feed.sql",
        text: "where not isempty(serials) and holders <> '{}'",
        without: "where false",
      },
    ],
  },
  {
    model: "feed",
    name: "the place behind the last page",
    sql: null,
    changes: [
      {
        path: "src/feed/feed-sql.ts",
        text: "and position > greatest($2::bigint",
        without: "and position >= greatest($2::bigint",
      },
    ],
  },
  {
    model: "cell",
    name: "publishing's look at the account",
    sql: "publish_each",
    changes: [
      { path: "sql/0010_delivery.sql", text: "or accounts.moved_to is not null", without: "or false" },
    ],
  },
  {
    model: "cell",
    name: "the target's word when a move is called off",
    sql: null,
    changes: [
      {
        path: "src/cells/calling-off.ts",
        text: "if (!(await forbidOpening(target, accountId, out.id)))",
        without: "if (false)",
      },
    ],
  },
];
