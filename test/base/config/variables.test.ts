import { expect, test } from "vitest";
import { variables } from "../../../src/base/config/variables.ts";
import { configurationTable } from "../../support/configuration-table.ts";

test("the table has one row for each variable", () => {
  const rows = configurationTable().split("\n").slice(2);
  expect(rows).toHaveLength(Object.keys(variables).length);
  expect(rows.every((row) => row.split(/(?<!\\)\|/).length === 5)).toBe(true);
});
