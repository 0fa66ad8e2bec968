import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createContext, runInContext } from "node:vm";
import { rolldown } from "rolldown";
import { afterAll, beforeAll, expect, test } from "vitest";
import { importSigningKey, signatureHeader } from "../../src/signing/index.ts";
import { findProgram } from "../support/programs.ts";
import { SIGNATURE_VECTORS_PATH } from "./vectors.ts";

const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));
// A third is the README with its recipes in other languages; the code is there twice, for ESM and CommonJS, and so is
// what stands in for node:crypto. Standard Webhooks took 3 KiB.
const PACKED_BYTES_MAX = 39 * 1024;

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
  expect(readdirSync(installed).sort()).toEqual([
    "LICENSE-noble-hashes",
    "README.md",
    "cjs",
    "esm",
    "package.json",
    "web",
  ]);
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

test("imports node:crypto and nothing else, in one file, which the web and browsers do without", () => {
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
  expect(new Set(reached("index.js"))).toEqual(new Set(["#crypto"]));
  expect(reached("web.js")).toEqual([]);
  const { imports: named } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  const portable = "./esm/portable-crypto.js";
  expect(named["#crypto"]).toEqual({
    workerd: portable,
    "edge-light": portable,
    browser: portable,
    default: "./esm/node-crypto.js",
  });
  for (const format of ["esm", "cjs"]) {
    const bundled = readFileSync(join(installed, format, "portable-crypto.js"), "utf8");
    expect(bundled).not.toMatch(/^\s*import\b|\brequire\(|\bfrom "/m);
  }
});

const TEXT = new TextEncoder().encode("{}");
const SECRET = "whsec_x";
const header = signatureHeader({ timestampSeconds: 1, body: TEXT, keys: [importSigningKey(SECRET)] });

/** Without conditions: the platform's own. */
type Target = { readonly platform: "browser" | "neutral" | "node"; readonly conditionNames?: string[] };

/** The main entry as a bundler puts it into one file, and what that imports. */
async function bundle({ platform, conditionNames }: Target) {
  const input = join(project, "bundled.js");
  writeFileSync(input, 'export * from "sealpost-receiver";');
  const built = await rolldown({ input, platform, ...(conditionNames && { resolve: { conditionNames } }) });
  // One file to run, which names no imports, and the same as a module, which does.
  const { output } = await built.generate({ format: "iife", name: "receiver" });
  const { output: asModule } = await built.generate({ format: "esm" });
  await built.close();
  return { code: output[0].code, imports: asModule[0].imports };
}

test.each<Target>([
  { platform: "browser" },
  { platform: "neutral", conditionNames: ["workerd", "import"] },
  { platform: "neutral", conditionNames: ["edge-light", "import"] },
])("bundles from its main entry for %j, and works there without Node", async (target) => {
  const { code, imports } = await bundle(target);
  expect(imports).toEqual([]);
  // Nothing of Node but what every runtime has, too.
  const context = createContext({ TextEncoder, TextDecoder, TEXT, header, SECRET });
  const verify = (secret: string) =>
    runInContext(
      `${code}
       try {
         const input = { body: TEXT, header, secrets: [${secret}], nowSeconds: 1 };
         String(receiver.verifySignature(input));
       } catch ({ code }) { code }`,
      context,
    );
  // Not a promise, which would let the code behind it go on.
  expect(verify("SECRET")).toBe("undefined");
  expect(verify("SECRET + 1")).toBe("no_signature_matches");
  expect(verify('""')).toBe("secret_empty");
});

test("is loaded with require, too, with Node's implementation and without", () => {
  const program = 'const { verifyWebhook } = require("sealpost-receiver"); console.log(typeof verifyWebhook)';
  for (const conditions of [[], ["--conditions=browser"]]) {
    expect(run(process.execPath, [...conditions, "--input-type=commonjs", "--eval", program])).toBe(
      "function\n",
    );
  }
});

test("bundles for Node with Node's own implementation", async () => {
  expect((await bundle({ platform: "node" })).imports).toEqual(["node:crypto"]);
});

test("has its web entry for resolvers that know nothing of exports, with types", () => {
  const folder = join(installed, "web");
  const { main, types } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const names = run(process.execPath, ["-p", `Object.keys(require(${JSON.stringify(folder)})).join()`]);
  expect(names).toContain("verifyWebhook");
  expect(join(folder, main).replace(/\.js$/, ".d.ts")).toBe(join(folder, types));
  expect(readFileSync(join(folder, types), "utf8")).toContain("function verifyWebhook");
});

test.each([[[]], [["--conditions=browser"]]])(
  "passes the vectors, both entries, on the machine's own Node with %j",
  (conditions) => {
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
    const lines = run(node, [...conditions, "vectors.js", fileURLToPath(SIGNATURE_VECTORS_PATH)])
      .trim()
      .split("\n");
    expect(lines).toEqual(Array(88).fill("right"));
  },
);
