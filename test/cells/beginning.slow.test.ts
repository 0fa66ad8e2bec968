import { describe, expect, it } from "vitest";
import { refusalOf } from "../../src/cells/beginning.ts";

const facts = {
  identity: "1/5",
  isStandby: false,
  migrations: ["0001_a.sql x", "0002_b.sql y"],
  cell: null,
};
const files = ["0001_a.sql", "0002_b.sql"];

describe("an account can go from one database to another", () => {
  it("on another server, or beside it, where both are of this version", () => {
    expect(refusalOf(facts, { ...facts, identity: "2/5" }, files)).toBe(null);
    expect(refusalOf(facts, { ...facts, identity: "1/6" }, files)).toBe(null);
  });

  it("unless it is the same, or one of them a standby", () => {
    expect(refusalOf(facts, { ...facts }, files)).toContain("same database");
    expect(refusalOf(facts, { ...facts, isStandby: true }, files)).toContain("target is a standby");
    expect(refusalOf({ ...facts, isStandby: true }, { ...facts, identity: "2/5" }, files)).toContain(
      "source is a standby",
    );
  });

  it("unless one is of another version, or has another text of a file", () => {
    const other = { ...facts, identity: "2/5" };
    const older = { ...other, migrations: ["0001_a.sql x"] };
    expect(refusalOf(facts, older, files)).toContain("target is not on this version");
    expect(refusalOf(older, facts, files)).toContain("source is not on this version");
    expect(refusalOf(facts, other, [...files, "0003_c.sql"])).toContain("not on this version");
    expect(refusalOf(facts, { ...other, migrations: ["0001_a.sql x", "0002_b.sql z"] }, files)).toContain(
      "version",
    );
  });
});
