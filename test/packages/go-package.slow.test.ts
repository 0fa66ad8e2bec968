// The module for Go as a stranger has it: unpacked beside an empty module of their own, without a network.
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WEBHOOK_VERIFICATION_ERROR_CODES } from "../../src/signing/index.ts";
import { namedVerdicts, packageLines, packageVerdicts } from "../recipes/trials.ts";
import { program } from "../support/programs.ts";
import { patience } from "../support/time-limits.ts";
import { checkReceiver, REPOSITORY, RIGHT } from "./stranger.ts";

// The first compilation of Go's own packages takes half a minute on a small machine.
const COMPILED_WITHIN_MS = patience(180_000);

const folder = mkdtempSync(join(tmpdir(), "go-package-"));
const sources = join(REPOSITORY, "packages", "go");
const readme = readFileSync(join(sources, "README.md"), "utf8");

function run(command: string, args: readonly string[], input = "", cwd = folder): string {
  const env = { ...process.env, GOPROXY: "off", GOTOOLCHAIN: "local", GOFLAGS: "" };
  return execFileSync(command, args, { cwd, encoding: "utf8", env, input, stdio: "pipe" });
}

beforeAll(() => {
  const go = program("go");
  // As the archive that receivers get makes it.
  cpSync(sources, join(folder, "sealpost-receiver"), { recursive: true });
  run(go, ["mod", "init", "stranger"]);
  const [, edit = ""] = /^go (mod edit .*)$/m.exec(readme) ?? [];
  run(go, edit.split(" "));
  for (const [name, path] of [
    ["receiver", "test/recipes/go/receiver.go"],
    ["verdicts", "test/packages/go/verdicts.go"],
  ] as const) {
    mkdirSync(join(folder, name));
    copyFileSync(join(REPOSITORY, path), join(folder, name, "main.go"));
    run(go, ["build", "-o", join(folder, `${name}-program`), `./${name}`]);
  }
}, COMPILED_WITHIN_MS);
afterAll(() => rmSync(folder, { recursive: true }));

test("needs no other module, and nothing newer than Go 1.19", () => {
  expect(run(program("go"), ["list", "-m", "all"]).trim().split("\n")).toEqual([
    "stranger",
    "sealpost.example/receiver v1.1.0 => ./sealpost-receiver",
  ]);
  expect(readFileSync(join(sources, "go.mod"), "utf8")).toMatch(/^go 1\.19$/m);
});

test("judges every vector as the library does, and answers the same challenges", () => {
  const output = run(join(folder, "verdicts-program"), [], `${packageLines.join("\n")}\n`);
  expect(namedVerdicts(output)).toEqual(packageVerdicts);
});

test("passes its own tests, in the repository with its vectors, and what vet asks", {
  timeout: COMPILED_WITHIN_MS,
}, () => {
  expect(run(program("go"), ["vet", "."], "", sources)).toBe("");
  const said = run(program("go"), ["test", "-count=1", "-v", "."], "", sources);
  expect(said).toContain("--- PASS: TestVectors");
  expect(said).not.toMatch(/--- (?:SKIP|FAIL)/);
});

test("is formatted as Go is", () => {
  const files = [
    sources,
    join(REPOSITORY, "test", "recipes", "go"),
    join(REPOSITORY, "test", "packages", "go"),
  ];
  expect(run(program("gofmt"), ["-l", ...files])).toBe("");
});

test("has the library's codes", () => {
  const codes = [...readFileSync(join(sources, "errors.go"), "utf8").matchAll(/ Code = "(\w+)"/g)];
  const never: readonly string[] = ["web_crypto_missing", "body_already_parsed"];
  expect(codes.map(([, code]) => code).sort()).toEqual(
    WEBHOOK_VERIFICATION_ERROR_CODES.filter((code) => !never.includes(code)).sort(),
  );
});

test("the README's program is right, as the receiver check sees it", {
  timeout: patience(60_000),
}, async () => {
  expect(await checkReceiver(join(folder, "receiver-program"), () => [])).toMatchObject(RIGHT);
});
