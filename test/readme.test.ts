import { existsSync, globSync, readFileSync } from "node:fs";
import { afterEach, describe, expect, test, vi } from "vitest";
import { runSealpost } from "./support/command.ts";
import { setup } from "./support/programs.ts";

const root = new URL("../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");
const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };

const documents = [
  "README.md",
  "docs/operating.md",
  "CHANGELOG.md",
  "src/signing/README.md",
  "src/publish/README.md",
  "test/bench/README.md",
  "test/faults/README.md",
];

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

  test("links only to files that there are", () => {
    const here = new URL(path, root);
    for (const [, target = ""] of text.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)) {
      expect(existsSync(new URL(target, here)), target).toBe(true);
    }
  });

  test("links only to headings that there are", () => {
    const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
      title
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, "")
        .replaceAll(" ", "-"),
    );
    for (const [, anchor = ""] of text.matchAll(/\]\(#([^)]+)\)/g)) expect(headings).toContain(anchor);
  });
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
      /(?:skip|skipIf|runIf)\(.*(?:findProgram|program\(|s3Server)/.test(read(path)),
    );
    expect(looks).toEqual([]);
  });
});
