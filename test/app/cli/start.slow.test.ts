import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import type { LogLine } from "../../support/child-processes.ts";
import { runSealpost } from "../../support/command.ts";
import { runProcess, SealpostProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";

// One folder for all: making a database takes longer than everything else here.
const stateDir = mkdtempSync(join(tmpdir(), "sealpost-start-"));
const running: SealpostProcess[] = [];

afterAll(() => rmSync(stateDir, { recursive: true }));
afterEach(async () => {
  for (const one of running.splice(0)) await one.stop();
});

/** Starts the whole service on the state folder of this test. */
function start(env: Record<string, string> = {}): SealpostProcess {
  const common = { STATE_DIR: stateDir, PORT: "0", LOG_LEVEL: "silent" };
  const started = new SealpostProcess(["start", "--json"], { ...common, ...env });
  running.push(started);
  return started;
}

const runs = (name: string) => (one: LogLine) => one.event === "running" && one.name === name;
const untilBothRun = (one: SealpostProcess) =>
  Promise.all(["dispatcher", "API"].map((name) => one.waitForLine(runs(name))));

describe("start on a database of its own", { timeout: patience(90_000) }, () => {
  test("makes a first account once, and other commands find its database", async () => {
    const first = start({ UNSAFE_ALLOWED_TARGETS: "localhost:4000" });
    await untilBothRun(first);
    const account = await first.waitForLine((one) => one.event === "first_account");
    // Last, so that it is not among what the start has to tell.
    expect(first.lines.at(-1)).toBe(account);
    expect(account).toMatchObject({
      account_id: expect.any(String),
      api_key: expect.stringMatching(/^svc_test_/),
      signing_secret: expect.stringMatching(/^whsec_/),
    });
    const env = { STATE_DIR: stateDir };
    const keys = JSON.parse((await runSealpost(["key", "list"], { env })).stdout);
    expect(keys).toMatchObject([{ key_id: account.key_id, account_id: account.account_id }]);

    // What the service accepts, its commands accept, unless they are told otherwise.
    const url = ["--webhook-url", "https://localhost:4000/webhooks"];
    const publish = (id: string, more: Record<string, string>) =>
      runSealpost(["publish", "--account", String(account.account_id), ...url], {
        input: `{"id":"${id}","status":"succeeded"}`,
        env: { ...env, ...more },
      });
    expect(await publish("with-its-settings", {})).toMatchObject({ code: 0, stderr: "" });
    const other = await publish("with-others", { UNSAFE_ALLOWED_TARGETS: "localhost:4001" });
    expect(other.code).toBe(2);
    expect(other.stderr).toContain("UNSAFE_ALLOWED_TARGETS of the service can allow it");

    expect(await first.stop()).toBe(0);
    expect(first.errors).toBe("");
    for (const file of ["database-url", "settings.json", "receiver-port"]) {
      expect(existsSync(join(stateDir, file)), file).toBe(false);
    }
    expect((await runSealpost(["key", "list"], { env })).code).toBe(2);

    const second = start();
    await untilBothRun(second);
    expect(second.lines.map((one) => one.event)).not.toContain("first_account");
    const again = JSON.parse((await runSealpost(["key", "list"], { env })).stdout);
    expect(again).toEqual(keys);
  });

  test("killed, leaves no process behind, and the next start works", async () => {
    const first = start();
    await untilBothRun(first);
    // The children have the other end of the same output: it closes when the last of them has ended.
    await first.stop("SIGKILL");
    const second = start();
    await untilBothRun(second);
  });

  test("starts a dispatcher again that was killed", async () => {
    const started = start();
    const { pid } = await started.waitForLine(runs("dispatcher"));
    process.kill(pid as number, "SIGKILL");
    const ended = await started.waitForLine((one) => one.event === "ended");
    expect(ended).toMatchObject({ name: "dispatcher", how: "SIGKILL", again_in_ms: expect.any(Number) });
    // The first nominal delay is 500 ms, and jitter takes up to half of it.
    expect(ended.again_in_ms).toBeGreaterThanOrEqual(250);
    expect(ended.again_in_ms).toBeLessThanOrEqual(500);
    await started.waitForLine((one) => runs("dispatcher")(one) && one.pid !== pid);
  });

  test("is refused while another one runs there", async () => {
    const first = start();
    await first.waitForLine(runs("dispatcher"));
    const second = start();
    expect((await second.finished).code).toBe(2);
    expect(second.errors).toMatch(/^[A-Z][^\n]* in use [^\n]*\n$/);
  });
});

test("start reports that its port is taken, and ends with 2", async () => {
  const other = createServer();
  await once(other.listen(0, "127.0.0.1"), "listening");
  const { port } = other.address() as { port: number };
  const { code, stderr } = await start({ PORT: `${port}` }).finished;
  expect(code).toBe(2);
  expect(stderr).toContain(`The API cannot listen on HOST 127.0.0.1, PORT ${port} (EADDRINUSE): another`);
  other.close();
});

test("start ends when its configuration cannot be used, and says why", async () => {
  const unmade = join(stateDir, "unmade");
  expect(await start({ TARGET_CA_FILE: "/nobody/has/this.pem", STATE_DIR: unmade }).finished).toEqual({
    code: 2,
    stdout: "",
    stderr: "TARGET_CA_FILE (/nobody/has/this.pem) cannot be read (ENOENT).\n",
  });
  expect(existsSync(unmade)).toBe(false);
});

test("the API ends when the port of its metrics is taken", async () => {
  const other = createServer();
  await once(other.listen(0, "127.0.0.1"), "listening");
  const { port } = other.address() as { port: number };
  const started = start();
  await started.waitForLine(runs("dispatcher"));
  const { code, stderr } = await runProcess(["serve"], {
    env: { STATE_DIR: stateDir, PORT: "0", METRICS_PORT: `${port}` },
  });
  expect(code).toBe(2);
  expect(stderr).toContain(`METRICS_PORT ${port} (EADDRINUSE)`);
  await started.stop();
  other.close();
});

test("start waits for a database that is down, and ends on SIGTERM", async () => {
  const started = start({ DATABASE_URL: "postgres://ada:hunter2@127.0.0.1:1/sealpost" });
  const away = await started.waitForLine((one) => one.event === "database_away");
  expect(JSON.stringify(away)).not.toContain("hunter2");
  expect(await started.stop()).toBe(0);
});
