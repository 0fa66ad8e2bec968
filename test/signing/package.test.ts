import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { findProgram } from "../support/programs.ts";
import { SIGNATURE_VECTORS_PATH } from "./vectors.ts";

const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));
// A third is the README with its recipes in other languages; the code is there twice, for ESM and CommonJS.
// Standard Webhooks took 3 KiB of it.
const PACKED_BYTES_MAX = 33 * 1024;

const folder = mkdtempSync(join(tmpdir(), "receiver-package-"));
const project = join(folder, "project");
const installed = join(project, "node_modules", "sealpost-receiver");
let archive: string;

// A project of its own, outside the repository, so that nothing of it is found by chance.
beforeAll(() => {
  mkdirSync(project);
  archive = run(process.execPath, [join(REPOSITORY, "scripts/pack.ts"), "receiver", folder]).trim();
  writeFileSync(join(project, "package.json"), '{"name": "project", "type": "module", "private": true}');
  run("npm", ["install", "--offline", "--no-audit", "--no-fund", archive]);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function run(command: string, args: readonly string[]): string {
  return execFileSync(command, args, { cwd: project, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

test("is small, and holds the library, its types and its README alone", () => {
  expect(statSync(archive).size).toBeLessThan(PACKED_BYTES_MAX);
  expect(readdirSync(installed).sort()).toEqual(["README.md", "cjs", "esm", "package.json"]);
  const files = ["esm", "cjs"].map((format) => readdirSync(join(installed, format, "signing")));
  expect(files[0]).toEqual(files[1]);
  expect(files[0]).toEqual(expect.arrayContaining(["index.d.ts", "index.js", "web.d.ts", "web.js"]));
  for (const file of files[0]!) expect(file).toMatch(/^[a-z-]+(?:\.d\.ts|\.js)$/);
});

test("has recipes for every language in its README", () => {
  const readme = readFileSync(join(installed, "README.md"), "utf8");
  for (const language of ["Python", "Go", "PHP", "Ruby", "Java", "C#", "Shell"]) {
    expect(readme).toMatch(new RegExp(`^### ${language}`, "m"));
  }
  expect(readme).not.toContain("<!--");
});

test("depends on nothing and runs nothing at its installation", () => {
  const manifest = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  expect(manifest).toMatchObject({ name: "sealpost-receiver", type: "module", engines: { node: ">=18" } });
  for (const member of Object.keys(manifest)) expect(member).not.toMatch(/dependencies$|^scripts$|^bin$/i);
  expect(readdirSync(join(project, "node_modules")).filter((name) => !name.startsWith("."))).toEqual([
    "sealpost-receiver",
  ]);
});

test("imports node:crypto and nothing else, and not even that for the web", () => {
  const imports = new Map<string, string[]>();
  const modules = join(installed, "esm", "signing");
  for (const file of readdirSync(modules).filter((name) => name.endsWith(".js"))) {
    const source = readFileSync(join(modules, file), "utf8");
    expect(source).not.toMatch(/\bimport\s*\(|\brequire\b/);
    imports.set(
      file,
      [...source.matchAll(/\bfrom "([^"]+)"|^import "([^"]+)"/gm)].map((match) => match[1] ?? match[2]!),
    );
  }
  const reached = (file: string): string[] =>
    imports.get(file)!.flatMap((name) => (name.startsWith("./") ? reached(name.slice(2)) : [name]));
  expect(new Set(reached("index.js"))).toEqual(new Set(["node:crypto"]));
  expect(reached("web.js")).toEqual([]);
});

test("passes the vectors, both entries, on the machine's own Node", () => {
  const node = findProgram("node") ?? process.execPath;
  writeFileSync(
    join(project, "vectors.js"),
    `import { readFileSync } from "node:fs";
     import * as node from "sealpost-receiver";
     import * as web from "sealpost-receiver/web";
     const { cases } = JSON.parse(readFileSync(process.argv[2], "utf8"));
     const verdicts = { rejected: "reject", misuse: "error" };
     for (const entry of [node, web]) {
       for (const vector of cases) {
         const input = {
           body: Buffer.from(vector.body_base64, "base64"), header: vector.header, secrets: vector.secrets,
           nowSeconds: vector.now, toleranceSeconds: vector.tolerance_seconds,
         };
         let verdict = "accept";
         try { await entry.verifySignature(input); } catch (error) { verdict = verdicts[error.kind] ?? String(error); }
         console.log(verdict === vector.verdict ? "right" : "WRONG " + vector.name + ": " + verdict);
       }
     }`,
  );
  const lines = run(node, ["vectors.js", fileURLToPath(SIGNATURE_VECTORS_PATH)])
    .trim()
    .split("\n");
  expect(lines).toEqual(Array(88).fill("right"));
});
