import { Buffer } from "node:buffer";
import { execFileSync, type StdioOptions } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { verifySignature, type WebhookVerificationError } from "../../src/signing/index.ts";
import { type Program, program } from "../support/programs.ts";
import { patience } from "../support/time-limits.ts";
import { challenges, expectedVerdicts, namedVerdicts, traps, trialLines } from "./trials.ts";

const FOLDER = fileURLToPath(new URL("./", import.meta.url));
const builds = mkdtempSync(join(tmpdir(), "recipes-"));
afterAll(() => rmSync(builds, { recursive: true, force: true }));

test("the traps are traps for the library too", () => {
  for (const { verdict, body_base64, now, name, ...input } of traps) {
    let found = "accept";
    try {
      verifySignature({ ...input, body: Buffer.from(body_base64, "base64"), nowSeconds: now });
    } catch (error) {
      found = (error as WebhookVerificationError).kind === "misuse" ? "error" : "reject";
    }
    expect({ name, verdict: found }).toEqual({ name, verdict });
  }
});

test("three of them are answered by the library", () => {
  const answered = expectedVerdicts.filter(({ verdict }) => verdict.startsWith("answer "));
  expect(answered.map(({ name }) => name)).toEqual(
    challenges.slice(0, 3).map(({ name }) => `challenge: ${name}`),
  );
});

/**
 * Python and Go have packages, which are tried with the same in test/packages. C# stands in none of Debian's packages;
 * its recipe is the one that no test runs.
 */
const languages: Record<string, (lines: string) => string> = {
  php: (lines) => run("php", ["php/vectors.php"], lines),
  ruby: (lines) => run("ruby", ["ruby/vectors.rb"], lines),
  java: (lines) => {
    run("javac", ["-d", builds, "java/recipe.java", "java/vectors.java"], "");
    return run("java", ["-cp", builds, "Vectors"], lines);
  },
  shell: (lines) => run("bash", ["shell/vectors.sh"], lines),
};

function run(command: Program, args: readonly string[], input: string): string {
  const stdio: StdioOptions = ["pipe", "pipe", "inherit"];
  return execFileSync(program(command), args, { cwd: FOLDER, input, encoding: "utf8", stdio });
}

test.for(Object.keys(languages))(
  "the %s recipe judges every vector rightly",
  { timeout: patience(180_000), tags: ["slow"] },
  (name) => {
    const output = languages[name]!(`${trialLines.join("\n")}\n`);
    expect(namedVerdicts(output)).toEqual(expectedVerdicts);
  },
);
