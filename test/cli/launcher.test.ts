import { spawn } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { type Finished, untilFinished } from "../support/command.ts";

const launcher = fileURLToPath(new URL("../../src/sealpost.mjs", import.meta.url));
const elsewhere = mkdtempSync(join(tmpdir(), "sealpost-launcher-"));
afterAll(() => rmSync(elsewhere, { recursive: true }));

/** Starts the launcher on a Node that says it is of another version. */
function launch(file: string, version: string, args: string[], input = ""): Promise<Finished> {
  const versions = `{ ...process.versions, node: "${version}" }`;
  const pretend = `Object.defineProperty(process, "versions", { value: ${versions} })`;
  const child = spawn(process.execPath, [
    `--import=data:text/javascript,${encodeURIComponent(pretend)}`,
    file,
    ...args,
  ]);
  child.stdin.end(input);
  return untilFinished(child);
}

describe.each(["20.19.0", "24.0.0"])("started by Node %s", (version) => {
  test("a command gets its input and gives its answer and exit code", async () => {
    const good = await launch(launcher, version, ["target", "check"], '["https://example.com"]');
    expect(good).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(good.stdout)).toMatchObject([{ verdict: "allow" }]);
    const bad = await launch(launcher, version, ["target", "check"], "{}");
    expect(bad).toMatchObject({ code: 2, stdout: "" });
  });
});

test("too old, and without the project's own Node, it says so in one sentence", async () => {
  const alone = join(elsewhere, "sealpost.mjs");
  copyFileSync(launcher, alone);
  expect(await launch(alone, "20.19.0", ["start"])).toEqual({
    code: 2,
    stdout: "",
    stderr: "Sealpost needs Node 24 or newer, and this is 20.19.0: run `npm ci`, which brings one.\n",
  });
});
