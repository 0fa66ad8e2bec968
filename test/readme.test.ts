import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { afterEach, describe, expect, test, vi } from "vitest";
import { runSealpost } from "./support/command.ts";
import { setup } from "./support/programs.ts";

const root = new URL("../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");
const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };

const documents = globSync(
  ["*.md", "docs/*.md", "src/*/README.md", "packages/*/README.md", "test/*/README.md"],
  {
    cwd: root,
  },
).sort();
/** Without the blocks of code, which have paths and headings of their own. */
const proseOf = (path: string): string => read(path).replaceAll(/^ *```[\s\S]*?^ *```/gm, "");

function anchorsOf(path: string): readonly string[] {
  return [...proseOf(path).matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
    title
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}

test("the documents are found", () => {
  expect(documents).toEqual(
    expect.arrayContaining(["README.md", "docs/contributing.md", "src/signing/README.md"]),
  );
  expect(read("README.md").split("\n").length).toBeLessThanOrEqual(200);
});

describe.each(documents)("%s", (path) => {
  // A command may go on in the next line, with a backslash in a block and without one in a paragraph.
  const text = read(path).replaceAll("\\\n", " ");

  test("names only scripts that there are", () => {
    for (const [, name = ""] of text.matchAll(/npm run (?:-\S+ )*([\w:-]+)/g))
      expect(scripts).toHaveProperty([name]);
  });

  test("shows only commands and options that there are", async () => {
    for (const [line, said = ""] of text.matchAll(/sealpost -- ([^`#|]+?)(?=[`#|]|$)/gm)) {
      const words = said.trim().split(/\s+/);
      const first = words.findIndex((word) => !/^[a-z]+$/.test(word));
      const command = first < 0 ? words : words.slice(0, first);
      const { stdout: help } = await runSealpost([...command, "--help"]);
      expect(help, line).toContain(["Usage: sealpost", ...command, ""].join(" "));
      for (const option of words.filter((word) => word.startsWith("--")))
        expect(help, line).toContain(option);
    }
  });

  test("links only to files and headings that there are", () => {
    const here = new URL(path, root);
    for (const [, target = "", anchor] of text.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)/g)) {
      const file = target === "" ? path : new URL(target, here).pathname.slice(root.pathname.length);
      expect(existsSync(new URL(file, root)), target).toBe(true);
      if (anchor !== undefined) expect(anchorsOf(file), file).toContain(anchor);
    }
    for (const [, anchor] of text.matchAll(/\/guide#([\w-]+)/g)) {
      expect(anchorsOf("src/signing/README.md")).toContain(anchor);
    }
  });

  test("names only paths that there are", () => {
    const isMap = path === "docs/contributing.md";
    for (const line of proseOf(path).split("\n")) {
      const spans = [...line.matchAll(/`([^`]+)`/g)].map(([, span = ""]) => span);
      // A row of the map names what is in its room, too.
      const bases = isMap ? ["", "src/", `src/${spans[0]}`] : [""];
      const isPath = isMap
        ? /^[\w-]+(?:\/[\w.*-]*)+$|^[\w-]+\.(?:ts|mjs)$/
        : /^(?:src|test|sql|docs|grafana|scripts|packages)\/[\w./*-]*$/;
      for (const span of spans.filter((one) => isPath.test(one))) {
        expect(
          bases.flatMap((base) => globSync(`${base}${span}`, { cwd: root })),
          span,
        ).not.toEqual([]);
      }
    }
  });
});

test("the map has every room", () => {
  const [, table = ""] = /^\| room \|.*\n\|-.*\n((?:\|.*\n)+)/m.exec(read("docs/contributing.md")) ?? [];
  const named = [...table.matchAll(/^\| `(\w+)\//gm)].map(([, room]) => room);
  const rooms = readdirSync(new URL("src", root), { withFileTypes: true }).filter((one) => one.isDirectory());
  expect([...new Set(named)].sort()).toEqual(rooms.map(({ name }) => name).sort());
});

test.each(["docs/contributing.md", "docs/design.md"])(
  "%s names only functions and tables in SQL that there are",
  (path) => {
    const sql = globSync("sql/*.sql", { cwd: root }).map(read).join("\n");
    for (const [, name] of proseOf(path).matchAll(/`sealpost\.(?!mjs)(\w+)/g)) {
      expect(sql).toMatch(new RegExp(`(?:function|table) sealpost\\.${name}\\b`));
    }
  },
);

test("what code and configuration say of documents leads to them", () => {
  const files = globSync(
    [
      ...["Dockerfile", "compose.yaml", "src/**/*.{ts,mjs}", "scripts/*", "test/**/*.ts", "sql/**/*.sql"],
      ...["grafana/**/*.{json,yml,yaml}", "docs/*/*.{cfg,conf,env,map,service,yaml}"],
    ],
    { cwd: root },
  );
  const named = files.flatMap((file) =>
    [...read(file).matchAll(/(?<![\w./-])((?:docs|(?:src|test)\/\w+)\/[\w-]+\.md)(?:#([\w-]+))?/g)].map(
      ([, document = "", anchor]) => ({ file, document, anchor }),
    ),
  );
  expect(named.length).toBeGreaterThan(50);
  for (const { file, document, anchor } of named) {
    expect(existsSync(new URL(document, root)), `${document} in ${file}`).toBe(true);
    if (anchor !== undefined) expect(anchorsOf(document), `${document} in ${file}`).toContain(anchor);
  }
});

test("the changelog has a section for this version, and one for what comes next", () => {
  const { version } = JSON.parse(read("package.json"));
  const sections = [...read("CHANGELOG.md").matchAll(/^## (\S+)/gm)].map(([, name]) => name);
  expect(sections.slice(0, 2)).toEqual(["Unreleased", version]);
});

describe("the whole run", () => {
  afterEach(() => vi.unstubAllEnvs());

  test("does not start without a program that it needs, and names its package", () => {
    vi.stubEnv("PATH", "");
    expect(setup).toThrow(/\n {2}openssl is not installed \(Debian: apt-get install openssl\)\n/);
    expect(setup).toThrow(/\n {2}promtool is not installed \(Debian: apt-get install prometheus\)\n/);
  });

  test("leaves no test out for want of one", () => {
    const files = globSync("test/**/*.ts", { cwd: root }).filter((path) => path !== "test/readme.test.ts");
    const looks = files.filter((path) =>
      /(?:skip|skipIf|runIf)\(.*(?:findProgram|program\(|installedGoProgram)/.test(read(path)),
    );
    expect(looks).toEqual([]);
  });
});
