import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { expect, test } from "vitest";
import { readConfig } from "../../src/base/config/config.ts";
import { variables } from "../../src/base/config/variables.ts";
import { runSealpost } from "../support/command.ts";
import { program } from "../support/programs.ts";
import { runProcess } from "../support/sealpost-process.ts";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
const unit = read("docs/systemd/sealpost@.service");
const common = parseEnv(read("docs/systemd/sealpost.env")) as Record<string, string>;
const dispatch = parseEnv(read("docs/systemd/dispatch.env")) as Record<string, string>;

/** Every value of a setting of the unit. */
const valuesOf = (name: string) =>
  [...unit.matchAll(/^(\w+)=(.*)$/gm)].filter(([, each]) => each === name).map(([, , value = ""]) => value);

test("the environment files set variables that there are, to values that they take", () => {
  for (const name of Object.keys({ ...common, ...dispatch })) {
    expect([...Object.keys(variables), "NODE_OPTIONS"]).toContain(name);
  }
  const secretsKey = Buffer.alloc(32).toString("base64");
  const serving = readConfig({ ...common, SECRETS_KEY: secretsKey });
  const dispatching = readConfig({ ...common, ...dispatch, SECRETS_KEY: secretsKey });
  expect(serving.environment).toBe("production");
  expect(new Set([serving.port, serving.metricsPort, dispatching.metricsPort]).size).toBe(3);
});

test("as they are they start nothing: the key is to be made", () => {
  expect(() => readConfig(common)).toThrow("SECRETS_KEY is unset but required");
});

test("the unit runs the program's commands, and waits for them to end", async () => {
  const [command = ""] = valuesOf("ExecStart");
  const [, path = "", argument] = command.split(" ");
  expect(existsSync(new URL(`../../${path}`, import.meta.url)), path).toBe(true);
  expect(argument).toBe("%i");
  const named = [...unit.matchAll(/\bsealpost@(\w+)/g)].map(([, name = ""]) => name);
  expect(named).toEqual(["serve", "dispatch"]);
  for (const name of named) expect((await runSealpost([name, "--help"])).code).toBe(0);
  const { attemptDeadlineMs } = readConfig({});
  expect(Number(valuesOf("TimeoutStopSec")[0]) * 1_000).toBeGreaterThan(attemptDeadlineMs + 2_000);
});

test("the unit does not restart what a restart cannot mend", async () => {
  const { code } = await runProcess(["serve"], { env: { PORT: "http" } });
  expect(valuesOf("RestartPreventExitStatus")).toEqual([String(code)]);
});

test("the unit's processes keep documents in the folder that systemd makes for them", () => {
  expect(valuesOf("Environment")).toEqual([`STATE_DIR=%S/${valuesOf("StateDirectory")[0]}`]);
});

test("systemd understands every line of the unit", { tags: ["slow"] }, () => {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-unit-"));
  // Verified without this machine's users and programs, which it need not have.
  const text = unit
    .replace(/^(?:User|Group|WorkingDirectory)=.*\n/gm, "")
    .replace("/usr/bin/node", process.execPath);
  writeFileSync(join(folder, "sealpost@.service"), text);
  writeFileSync(join(folder, "sealpost@serve.service"), text);
  try {
    const unitPath = join(folder, "sealpost@serve.service");
    const { stderr } = spawnSync(program("systemd-analyze"), ["verify", unitPath], { encoding: "utf8" });
    expect(stderr.split("\n").filter((line) => line.includes("sealpost@"))).toEqual([]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
