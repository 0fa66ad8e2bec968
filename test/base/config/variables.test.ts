import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { configurationTable, variables } from "../../../src/base/config/variables.ts";

test("the table has one row for each variable", () => {
  const rows = configurationTable().split("\n").slice(2);
  expect(rows).toHaveLength(Object.keys(variables).length);
  expect(rows.every((row) => row.split(/(?<!\\)\|/).length === 5)).toBe(true);
});

test("the README shows the table as it is declared", () => {
  const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
  const table = readme.split("\n").filter((line) => line.startsWith("| `") && /^\| `[A-Z_]+` \|/.test(line));
  expect(table.join("\n")).toBe(configurationTable().split("\n").slice(2).join("\n"));
});
