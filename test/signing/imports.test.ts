import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const FOLDER = new URL("../../src/signing/", import.meta.url);

/** Everything that a file names in an import or export, and what those name in turn. */
function importsFrom(file: URL, seen = new Set<string>()): Set<string> {
  const source = readFileSync(file, "utf8");
  expect(source, "a dynamic import or require would hide from this test").not.toMatch(
    /\bimport\s*\(|\brequire\b/,
  );
  for (const [, specifier] of source.matchAll(
    /^(?:import|export|\})[^;]*?from "([^"]+)";|^import "([^"]+)";/gm,
  )) {
    if (specifier === undefined || seen.has(specifier)) continue;
    seen.add(specifier);
    if (specifier.startsWith(".")) importsFrom(new URL(specifier, file), seen);
  }
  return seen;
}

function external(entry: string): string[] {
  const all = [...importsFrom(new URL(entry, FOLDER))];
  expect(all.length).toBeGreaterThan(5);
  expect(all.filter((specifier) => specifier.startsWith("../"))).toEqual([]);
  return all.filter((specifier) => !specifier.startsWith("."));
}

test("the Node entry imports node:crypto and nothing else", () => {
  expect(external("index.ts")).toEqual(["node:crypto"]);
});

test("the web entry imports nothing", () => {
  expect(external("web.ts")).toEqual([]);
});
