// What was released was applied somewhere: its SQL files stay as they are, and the next one comes after them.
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { openRelease, ROOT } from "./release.ts";

type SqlFiles = ReadonlyMap<string, string>;

/** What the others make, written again with each of them. */
const SHOWN = "schema.sql";
const IN_A_NEW_FILE = "Undo that, and put the change into a new file with the next number.";

let released: SqlFiles;
let ours: SqlFiles;

beforeAll(async () => {
  const { folder } = await openRelease("newest");
  [released, ours] = await Promise.all([readSql(folder), readSql(ROOT)]);
});

test("every SQL file of the last release is still here, byte for byte", () => {
  expect(released.size).toBeGreaterThan(0);
  expect(breaches(released, ours)).toEqual([]);
});

test("an edited, a removed and a squeezed-in file are each noticed; one at the end is not", () => {
  const before = new Map([
    ["0001_first.sql", "select 1;\n"],
    ["0002_second.sql", "select 2;\n"],
  ]);
  const withFile = (name: string, text: string) => new Map([...before, [name, text]]);
  expect(breaches(before, withFile("0002_second.sql", "select 2; \n"))).toEqual([
    `sql/0002_second.sql was changed after it had been released. ${IN_A_NEW_FILE}`,
  ]);
  expect(breaches(before, new Map([...before].slice(1)))).toEqual([
    `sql/0001_first.sql was removed after it had been released. ${IN_A_NEW_FILE}`,
  ]);
  expect(breaches(before, withFile("0001_squeezed_in.sql", "select 3;\n"))).toEqual([
    "sql/0001_squeezed_in.sql is new and comes before sql/0002_second.sql, which was released: number it higher.",
  ]);
  expect(breaches(before, withFile("0003_third.sql", "select 3;\n"))).toEqual([]);
  expect(breaches(before, withFile("area/0001_first.sql", "select 1;\n"))).toEqual([]);
  before.set("area/0002_second.sql", "select 2;\n");
  expect(breaches(before, withFile("area/0001_squeezed_in.sql", "select 1;\n"))).toEqual([
    "sql/area/0001_squeezed_in.sql is new and comes before sql/area/0002_second.sql, which was released: " +
      "number it higher.",
  ]);
  before.set(SHOWN, "create table first ();");
  expect(breaches(before, withFile(SHOWN, "create table second ();"))).toEqual([]);
  expect(breaches(before, withFile("0003_third.sql", "select 3;\n"))).toEqual([]);
});

function breaches(before: SqlFiles, now: SqlFiles): string[] {
  // Those of an area are numbered by themselves.
  const newestBeside = (name: string) =>
    [...before.keys()]
      .filter((one) => one !== SHOWN && dirname(one) === dirname(name))
      .sort()
      .at(-1) ?? "";
  const broken = [...before]
    .filter(([name, text]) => name !== SHOWN && now.get(name) !== text)
    .map(([name]) => {
      const what = now.has(name) ? "changed" : "removed";
      return `sql/${name} was ${what} after it had been released. ${IN_A_NEW_FILE}`;
    });
  const late = [...now.keys()]
    .filter((name) => !before.has(name) && name < newestBeside(name))
    .map((name) => {
      const newest = newestBeside(name);
      return `sql/${name} is new and comes before sql/${newest}, which was released: number it higher.`;
    });
  return [...broken, ...late];
}

/** latin1, so that no two files of different bytes have the same text. */
async function readSql(folder: string): Promise<SqlFiles> {
  const found = await readdir(join(folder, "sql"), { recursive: true });
  const names = found.filter((name) => name.endsWith(".sql"));
  const texts = names.map(
    async (name) => [name, await readFile(join(folder, "sql", name), "latin1")] as const,
  );
  return new Map(await Promise.all(texts));
}
