// vitest global setup: no process of the suite may log a secret.
import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Where processes keep a copy of their output; see output-tap.ts. */
export const OUTPUT_FOLDER_VARIABLE = "SEALPOST_TEST_OUTPUT";

/** Keeps a copy of what this process, or a command in it, writes; nothing where the setup has not run. */
export function keepOutput(name: "stdout" | "stderr", text: string): void {
  const folder = process.env[OUTPUT_FOLDER_VARIABLE];
  if (folder === undefined) return;
  const lines = text.trimEnd().split("\n");
  appendFileSync(join(folder, `${process.pid}.txt`), lines.map((line) => `${name} ${line}\n`).join(""));
}

const secrets: readonly RegExp[] = [
  // Signing secrets, API keys, signatures, whoever made them.
  /whsec_[A-Za-z0-9+/]{43}=/,
  /\bsvc_(?:live|test)_[A-Za-z0-9_-]{40,}/,
  /\bv1=[0-9a-f]{64}/,
  // What tests plant: the key that secrets are sealed with, a database's password, and what is nobody's business.
  new RegExp(Buffer.alloc(32, 7).toString("base64").slice(0, 20)),
  /hunter2/,
  /planted-secret/,
];

/** Lines of a log or of standard error that contain a secret. A command's result (a new key) may be one. */
export function leaksIn(text: string): readonly string[] {
  return text
    .split("\n")
    .filter((line) => /^stdout \{"level":/.test(line) || line.startsWith("stderr "))
    .filter((line) => secrets.some((secret) => secret.test(line)));
}

export function setup(): () => void {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-output-"));
  process.env[OUTPUT_FOLDER_VARIABLE] = folder;
  return () => {
    const leaks = readdirSync(folder).flatMap((file) => leaksIn(readFileSync(join(folder, file), "utf8")));
    rmSync(folder, { recursive: true });
    if (leaks.length === 0) return;
    throw new Error(`Processes of the tests have logged secrets, ${leaks.length} times. First: ${leaks[0]}`);
  };
}
