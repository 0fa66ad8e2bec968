import { describe, expect, test } from "vitest";
import { accountScopes, KEY_CLASSES, userScopes } from "../../../src/base/model/api-keys.ts";
import { ACTOR_KINDS } from "../../../src/base/model/audit.ts";
import { CONSOLE_THEMES } from "../../../src/base/model/console.ts";
import { ANALYSIS_STATUSES, EVENTS } from "../../../src/base/model/events.ts";
import { MOVE_DIRECTIONS, MOVE_STEPS, type MoveStep } from "../../../src/base/model/installation.ts";
import { MAIL_STATUSES, type MailStatus, NOTICE_KINDS } from "../../../src/base/model/notices.ts";
import {
  DELIVERY_STATUSES,
  type DeliveryStatus,
  END_REASONS,
  OUTCOMES,
  type Outcome,
  REPLAY_OUTCOMES,
  REPLAY_STATUSES,
  REPLAYABLE_STATUSES,
  type ReplayStatus,
} from "../../../src/base/model/statuses.ts";
import { QUOTA_NAMES, STORAGE_KINDS } from "../../../src/base/model/storage.ts";
import { openDatabase } from "../../support/open.ts";

/** The columns that hold a member of one of the model's lists, each checked by PostgreSQL. */
const LISTS: Readonly<Record<string, readonly string[]>> = {
  "activity.outcome": OUTCOMES,
  "api_keys.class": KEY_CLASSES,
  "attempts.outcome": OUTCOMES,
  "audit_log.actor": ACTOR_KINDS,
  "replays.created_by": ACTOR_KINDS,
  "console_sessions.theme": CONSOLE_THEMES,
  "deliveries.event": EVENTS,
  "deliveries.reason": END_REASONS,
  "deliveries.status": DELIVERY_STATUSES,
  "late_attempts.outcome": OUTCOMES,
  "moves.direction": MOVE_DIRECTIONS,
  "moves.step": MOVE_STEPS,
  "notice_mails.status": MAIL_STATUSES,
  "notices.kind": NOTICE_KINDS,
  "replay_items.outcome": ["replayed", "skipped"],
  "replays.status": REPLAY_STATUSES,
  "quotas.quota": QUOTA_NAMES,
  "storage_limits.kind": STORAGE_KINDS,
};

/** Members that decide whether another column is null. */
const PAIRS: Readonly<Record<string, readonly string[]>> = {
  "api_keys.scopes, user_id": accountScopes.filter((scope) => !userScopes.includes(scope)),
  "attempts.outcome, error_code": ["succeeded" satisfies Outcome],
  "deliveries.status, reason": ["abandoned" satisfies DeliveryStatus],
  "moves.step, ended_at": ["done", "deleting", "deleted"] satisfies MoveStep[],
  "notice_mails.status, claim_token": ["sending" satisfies MailStatus],
  "notice_mails.status, claimed_until": ["sending" satisfies MailStatus],
  "notice_mails.status, ended_at": ["sent", "perhaps_sent", "failed"] satisfies MailStatus[],
  "replays.status, ended_at": ["running", "delivering"] satisfies ReplayStatus[],
};

/** Indexes over some members of a list only. */
const PARTIAL_INDEXES: Readonly<Record<string, readonly string[]>> = {
  notice_mails_claimed: ["sending" satisfies MailStatus],
  notice_mails_due: ["waiting" satisfies MailStatus],
  deliveries_undelivered: REPLAYABLE_STATUSES,
  replays_running: ["running" satisfies ReplayStatus],
  replays_running_account: ["running" satisfies ReplayStatus],
};

const database = await openDatabase();

const SCHEMA = "'sealpost'::regnamespace";
const literalsIn = (text: string) => [...text.matchAll(/'([^']*)'/g)].map(([, literal = ""]) => literal);
const sorted = (members: readonly string[]) => [...members].sort();
const sortedEach = (lists: Readonly<Record<string, readonly string[]>>) =>
  Object.fromEntries(Object.entries(lists).map(([name, members]) => [name, sorted(members)]));

/** All CHECKs that name a text, other than as a pattern; a partition's are its parent's. */
async function readChecks(): Promise<readonly { readonly table: string; readonly check: string }[]> {
  const { rows } = await database.pool.query<{ table: string; check: string }>(
    `select c.relname as table, pg_get_constraintdef(k.oid) as check
     from pg_constraint k join pg_class c on c.oid = k.conrelid
     where k.contype = 'c' and k.connamespace = ${SCHEMA} and k.coninhcount = 0`,
  );
  return rows.filter(
    ({ check }) => check.includes("'") && !/^CHECK \(\(\w+ ~ '[^']+'::text\)\)$/.test(check),
  );
}

describe("the CHECKs of the database", () => {
  // Not valid: for rows to come, as a scan of the log would take long.
  const LIST = /^CHECK \(\((\w+) = ANY \(ARRAY\[(.+)\]\)\)\)(?: NOT VALID)?$/;
  const PAIR =
    /^CHECK \(\(\((\w+) = (?:ANY \(ARRAY\[(.+)\]\)|('\w+')::text)\) = \((\w+) IS (?:NOT )?NULL\)\)\)$/;
  const REFUSED =
    /^CHECK \(\(\((?<other>\w+) IS NULL\) OR \(NOT \((?<column>\w+) && ARRAY\[(?<members>.+)\]\)\)\)\)$/;

  test("allow the model's lists, whole, and nothing else", async () => {
    const lists: Record<string, readonly string[]> = {};
    for (const { table, check } of await readChecks()) {
      const [, column, members = ""] = LIST.exec(check) ?? [];
      if (column !== undefined) lists[`${table}.${column}`] = literalsIn(members);
    }
    expect(sortedEach(lists)).toEqual(sortedEach(LISTS));
  });

  test("name members elsewhere only where this test knows of it", async () => {
    const pairs: Record<string, readonly string[]> = {};
    const unknown: string[] = [];
    for (const { table, check } of await readChecks()) {
      if (LIST.test(check)) continue;
      const refused = REFUSED.exec(check)?.groups;
      const [, column = refused?.column, members = refused?.members, member = "", other = refused?.other] =
        PAIR.exec(check) ?? [];
      if (column === undefined) unknown.push(`${table}: ${check}`);
      else pairs[`${table}.${column}, ${other}`] = literalsIn(members ?? member);
    }
    expect(unknown).toEqual([]);
    expect(pairs).toEqual(PAIRS);
  });

  test("leave no column of such a name open, but the one whose value comes from another's", async () => {
    const { rows } = await database.pool.query<{ name: string }>(
      `select c.relname || '.' || a.attname as name from pg_attribute a join pg_class c on c.oid = a.attrelid
       where c.relnamespace = ${SCHEMA} and c.relkind in ('r', 'p') and not c.relispartition
         and a.atttypid = 'text'::regtype and a.attname in
           ('actor', 'class', 'created_by', 'direction', 'event', 'kind', 'outcome', 'quota', 'reason', 'status',
            'step', 'theme')`,
    );
    // Publishing writes both rows of an event in one statement.
    const known = [...Object.keys(LISTS), "bodies.event"];
    expect(sorted(rows.map(({ name }) => name))).toEqual(sorted(known));
  });
});

test("partial indexes are over the members that the model says", async () => {
  const { rows } = await database.pool.query<{ name: string; predicate: string }>(
    `select c.relname as name, pg_get_expr(i.indpred, i.indrelid) as predicate
     from pg_index i join pg_class c on c.oid = i.indexrelid
     where i.indpred is not null and c.relnamespace = ${SCHEMA} and not c.relispartition`,
  );
  const named = rows.filter(({ predicate }) => predicate.includes("'"));
  const found = Object.fromEntries(named.map(({ name, predicate }) => [name, literalsIn(predicate)]));
  expect(sortedEach(found)).toEqual(sortedEach(PARTIAL_INDEXES));
});

describe("the functions of the database", () => {
  const sourcesOf = async () => {
    const { rows } = await database.pool.query<{ source: string }>(
      `select prosrc as source from pg_proc where pronamespace = ${SCHEMA}`,
    );
    return rows.map(({ source }) => source).join("\n");
  };
  const found = (pattern: RegExp, text: string) =>
    [...text.matchAll(pattern)].map(([, list = ""]) => sorted(literalsIn(list)));

  test("replay the statuses that the model says", async () => {
    const lists = found(/\bstatus (?:not )?in \(([^)]*)\)/g, await sourcesOf());
    expect(lists.length).toBeGreaterThan(0);
    for (const statuses of lists) expect(statuses).toEqual(sorted(REPLAYABLE_STATUSES));
  });

  test("give the outcomes of the model to a replay of one delivery", async () => {
    const given = found(/\boutcome := ('\w+')/g, await sourcesOf()).flat();
    expect(sorted([...new Set(given)])).toEqual(sorted(REPLAY_OUTCOMES));
  });

  test("publish analyses of the statuses that the model has an event for", async () => {
    const [statuses = []] = found(/\bstatus::text not in \(([^)]*)\)/g, await sourcesOf());
    expect(statuses).toEqual(sorted(ANALYSIS_STATUSES.map((status) => `"${status}"`)));
  });
});
