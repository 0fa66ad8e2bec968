import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

/** What a name of a prepared statement may be made of: each of few values, whatever anybody asks for. */
const MADE_OF = {
  // Of all, or of what a user sees.
  "seen.name": "Sight",
  // A column: of a space, or of a workflow.
  place: "runsIn",
  // Of any status, or by status.
  by: "runsIn",
  // Days that are kept; a day without a partition is asked for under the parents' name.
  day: "queryDay",
  // Of those that `queryDay` is called with.
  "query.name": "queryDay",
  // test/log/delivery-pages-sql.test.ts has them all.
  'hash("sha256", text, "base64url").slice(0, 16)': "pageConditions",
  // The demo's database, and no statement.
  'randomBytes(4).toString("hex")': "createExampleDatabase",
};

test("the names of prepared statements are made of what has few values", () => {
  const made: string[] = [];
  for (const path of globSync("src/**/*.ts")) {
    const text = readFileSync(path, "utf8");
    if (!/\bfrom "pg"/.test(text)) continue;
    for (const [, name = ""] of text.matchAll(/\bname\s*[:=]\s*`([^`]*)`/g))
      made.push(...[...name.matchAll(/\$\{([^}]*)\}/g)].map(([, part = ""]) => part));
  }
  expect(made.length).toBeGreaterThan(5);
  expect(new Set(made)).toEqual(new Set(Object.keys(MADE_OF)));
});
