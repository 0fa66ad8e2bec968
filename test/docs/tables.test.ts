// The tables in docs/ that follow from the code. `npm run docs` rewrites them.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { type Variable, variables } from "../../src/base/config/variables.ts";
import { configurationTable } from "../support/configuration-table.ts";
import { metricsTable } from "../support/metrics-table.ts";
import { operationsTable } from "../support/operations-table.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";

const pathOf = (name: string) => fileURLToPath(new URL(`../../docs/${name}.md`, import.meta.url));
const read = (name: string) => readFileSync(pathOf(name), "utf8");

/** The document with this table below its mark. */
function withTable(name: string, mark: string, table: string): string {
  const place = new RegExp(`(?<=^<!-- ${mark} -->\n\n)(?:\\|.*\n)*`, "m");
  expect(read(name)).toMatch(place);
  return read(name).replace(place, () => `${table.trimEnd()}\n`);
}

test("docs/api.md lists every operation as it is declared", async () => {
  const document = withTable("api", "operations", operationsTable(declaredOperations()));
  await expect(document).toMatchFileSnapshot(pathOf("api"));
});

test("docs/metrics.md lists every metric as it is declared", async () => {
  await expect(withTable("metrics", "metrics", metricsTable())).toMatchFileSnapshot(pathOf("metrics"));
});

const nameIn = (row: string) => /^\| `([A-Z_]+)` \|/.exec(row)?.[1] ?? "";

test("docs/configuration.md has each variable as it is declared, in one of its groups", async () => {
  const rows = new Map(
    configurationTable()
      .split("\n")
      .slice(2)
      .map((row) => [nameIn(row), row]),
  );
  const lines = read("configuration").split("\n");
  const kept = lines.filter((line) => nameIn(line) === "" || rows.has(nameIn(line)));
  const shown = kept.map(nameIn).filter((name) => name !== "");
  expect(shown.sort(), "begin its row in one of the groups: | `NAME` |").toEqual(
    Object.keys(variables).sort(),
  );
  const secrets = Object.entries<Variable<unknown>>(variables).filter(([, { kind }]) => kind.isSecret);
  const [, listed = ""] = /A variable that may hold a secret \(([^)]+)\)/.exec(read("configuration")) ?? [];
  expect([...listed.matchAll(/\w+/g)].map(String).sort()).toEqual(secrets.map(([name]) => name).sort());
  const document = kept.map((line) => rows.get(nameIn(line)) ?? line).join("\n");
  await expect(document).toMatchFileSnapshot(pathOf("configuration"));
});
