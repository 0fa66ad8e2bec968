import { expect, test } from "vitest";
import { configurationTable, variables } from "../../../src/base/config/variables.ts";

test("the table has one row for each variable", () => {
  const rows = configurationTable().split("\n").slice(2);
  expect(rows).toHaveLength(Object.keys(variables).length);
  expect(rows.every((row) => row.split(/(?<!\\)\|/).length === 5)).toBe(true);
});
