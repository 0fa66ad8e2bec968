import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { runAtTerminal } from "./support/terminal.ts";

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
      const { text: help } = await runAtTerminal([...command, "--help"], "");
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
