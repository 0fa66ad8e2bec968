import { expect, test } from "vitest";
import { findMoveHindrance } from "../../src/app/areas.ts";
import { BIN_KINDS } from "../../src/workspace/model/bin.ts";
import {
  DOCUMENT_ORIGINS,
  DOCUMENT_STATUSES,
  LIVE_CONTENT_TYPES,
} from "../../src/workspace/model/documents.ts";
import { LINK_STATUSES } from "../../src/workspace/model/pages.ts";
import { SPACE_ROLES } from "../../src/workspace/model/roles.ts";
import { RUN_EVENT_KINDS, RUN_STATUSES, WORKFLOW_STATUSES } from "../../src/workspace/model/workflows.ts";
import { createTestAccount } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { workspaceTests } from "./area-tests.ts";

/** The one table without an account's rows: which store the objects are in. */
const NOBODYS = "workspace.object_store";

const LISTS: Readonly<Record<string, readonly string[]>> = {
  "bin.kind": BIN_KINDS,
  "documents.doc_origin": DOCUMENT_ORIGINS,
  "documents.live_content_type": LIVE_CONTENT_TYPES,
  "documents.status": DOCUMENT_STATUSES,
  "node_runs.status": RUN_STATUSES,
  "run_events.kind": RUN_EVENT_KINDS,
  "runs.status": RUN_STATUSES,
  "page_links.status": LINK_STATUSES,
  "space_members.role": SPACE_ROLES,
  "workflows.status": WORKFLOW_STATUSES,
};

const database = await openDatabase();

test("the CHECKs of the workspace allow the model's lists, whole, and name no text elsewhere", async () => {
  const { rows } = await database.pool.query<{ table: string; check: string }>(
    `select c.relname as table, pg_get_constraintdef(k.oid) as check
     from pg_constraint k join pg_class c on c.oid = k.conrelid
     where k.contype = 'c' and k.connamespace = 'workspace'::regnamespace`,
  );
  const found = rows
    .filter(({ check }) => check.includes("'"))
    .map(({ table, check }) => {
      const [, column, list = ""] = /^CHECK \(\((\w+) = ANY \(ARRAY\[(.+)\]\)\)\)$/.exec(check) ?? [];
      return [`${table}.${column}`, [...list.matchAll(/'([^']*)'/g)].map(([, member]) => member)];
    });
  expect(Object.fromEntries(found)).toEqual(LISTS);
});

test("no table of the workspace is moved: none has a row of an account without a space", async () => {
  const { rows } = await database.pool.query<{ name: string; columns: string; refers: string[] }>(
    `select c.relname as name, a.attname as columns,
       array(select confrelid::regclass::text from pg_constraint where conrelid = c.oid and contype = 'f') as refers
     from pg_class c left join pg_attribute a on a.attrelid = c.oid and a.attname = 'account_id'
     where c.relnamespace = 'workspace'::regnamespace and c.relkind in ('r', 'p') order by c.relname`,
  );
  expect(rows.map(({ name }) => `workspace.${name}`)).toEqual([...workspaceTests.tables, NOBODYS].sort());
  // Of the whole installation, and of no account.
  for (const { name, columns, refers } of rows.filter(({ name }) => `workspace.${name}` !== NOBODYS)) {
    expect(columns, name).toBe("account_id");
    // The workspace itself is made with its first space, and spaces are never deleted.
    const isOfSpaces = refers.some((table) => ["workspace.spaces", "workspace.workspaces"].includes(table));
    if (name !== "workspaces") expect(isOfSpaces, name).toBe(true);
  }
  const { accountId } = await createTestAccount(database);
  expect(await findMoveHindrance(database.pool, accountId)).toBeNull();
});
