// An account that is in two cells since one of them was restored, as docs/operating.md closes it in one.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { deleteMoved } from "../../src/cells/calling-off.ts";
import { publishAt } from "../support/delivery-rows.ts";
import {
  countRows,
  createTestAccount,
  leaveDetaching,
  makePartitionsFrom,
  publish,
  SECRETS_KEY,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const database = await openDatabase();
const { pool } = database;
const document = readFileSync("docs/operating.md", "utf8").replaceAll(/\s+/g, " ");
const statements = /Run `(update [^`]+)` and `(insert [^`]+)`/.exec(document)!.slice(1);

test("has no text there any more, and so nothing to send", async () => {
  const { accountId } = await createTestAccount(database, "https://hooks.example.com/");
  await publish(pool, accountId, '{"id":"1","status":"succeeded"}');
  const texts = () => countRows(pool, "bodies", { account_id: accountId });
  expect(await texts()).toBe(1);
  // And one in a day that somebody's snapshot keeps from being dropped.
  await makePartitionsFrom(pool, "2020-01-01", 1);
  await publishAt(pool, accountId, new Date("2020-01-01T12:00:00Z"), ["2"]);
  await (await leaveDetaching(pool, "bodies_20200101")).rollback();
  for (const statement of statements) await pool.query(statement.replaceAll("ACCOUNT_ID", accountId));
  await deleteMoved({ pool, secretsKey: SECRETS_KEY }, accountId);
  expect(await texts()).toBe(0);
  expect(await countRows(pool, "bodies_20200101")).toBe(0);
});
