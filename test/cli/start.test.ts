import type { ChildProcess } from "node:child_process";
import { EventEmitter, on, once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { runSealpost, startSealpost } from "../support/command.ts";
import { patience } from "../support/time-limits.ts";

type Announced = { readonly event: string; readonly [field: string]: unknown };

// One folder for all: making a database takes longer than everything else here.
const stateDir = mkdtempSync(join(tmpdir(), "sealpost-start-"));
let running: ChildProcess[] = [];

afterAll(() => rmSync(stateDir, { recursive: true }));
afterEach(async () => {
  for (const child of running.filter((one) => one.exitCode === null && one.signalCode === null)) {
    child.kill("SIGTERM");
    await once(child, "close");
  }
  running = [];
});

/** Starts the whole service on the state folder of this test; `until` waits for something that it announces. */
function start(env: Record<string, string> = {}) {
  const child = startSealpost(["start", "--json"], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { STATE_DIR: stateDir, PORT: "0", METRICS_PORT: "0", LOG_LEVEL: "silent", ...env },
  });
  running.push(child);
  const announced: Announced[] = [];
  const bus = new EventEmitter();
  let stderr = "";
  child.stderr?.on("data", (data) => {
    stderr += data;
  });
  if (!child.stdout) throw new Error("The process has no output to read.");
  createInterface(child.stdout).on("line", (line) => {
    announced.push(JSON.parse(line));
    bus.emit("announced");
  });
  const closed = once(child, "close").then(([code]) => code as number | null);
  const until = async (wanted: (one: Announced) => boolean): Promise<Announced> => {
    const found = announced.find(wanted);
    if (found) return found;
    const ended = closed.then(() =>
      Promise.reject(new Error(`It ended: ${JSON.stringify(announced)} ${stderr}`)),
    );
    const arrival = (async () => {
      for await (const _ of on(bus, "announced")) {
        const late = announced.find(wanted);
        if (late) return late;
      }
      throw new Error("Nothing more is announced.");
    })();
    return Promise.race([arrival, ended]);
  };
  return { child, announced, until, closed, stderr: () => stderr };
}

const runs = (name: string) => (one: Announced) => one.event === "running" && one.name === name;

describe("start on a database of its own", { timeout: patience(90_000) }, () => {
  test("makes a first account once, and other commands find its database", async () => {
    const first = start({ UNSAFE_ALLOWED_TARGETS: "localhost:4000" });
    await Promise.all([first.until(runs("dispatcher")), first.until(runs("API"))]);
    const account = await first.until((one) => one.event === "first_account");
    // Last, so that it is not among what the start has to tell.
    expect(first.announced.at(-1)).toBe(account);
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

    first.child.kill("SIGTERM");
    expect(await first.closed).toBe(0);
    expect(first.stderr()).toBe("");
    for (const file of ["database-url", "settings.json"]) {
      expect(existsSync(join(stateDir, file)), file).toBe(false);
    }
    expect((await runSealpost(["key", "list"], { env })).code).toBe(2);

    const second = start();
    await Promise.all([second.until(runs("dispatcher")), second.until(runs("API"))]);
    expect(second.announced.map((one) => one.event)).not.toContain("first_account");
    const again = JSON.parse((await runSealpost(["key", "list"], { env })).stdout);
    expect(again).toEqual(keys);
  });

  test("killed, leaves no process behind, and the next start works", async () => {
    const first = start();
    await Promise.all([first.until(runs("dispatcher")), first.until(runs("API"))]);
    first.child.kill("SIGKILL");
    // The children have the other end of the same output: it closes when the last of them has ended.
    await first.closed;
    const second = start();
    await Promise.all([second.until(runs("dispatcher")), second.until(runs("API"))]);
  });

  test("starts a dispatcher again that was killed", async () => {
    const { until } = start();
    const { pid } = await until(runs("dispatcher"));
    process.kill(pid as number, "SIGKILL");
    const ended = await until((one) => one.event === "ended");
    expect(ended).toMatchObject({ name: "dispatcher", how: "SIGKILL", again_in_ms: expect.any(Number) });
    // The first nominal delay is 500 ms, and jitter takes up to half of it.
    expect(ended.again_in_ms).toBeGreaterThanOrEqual(250);
    expect(ended.again_in_ms).toBeLessThanOrEqual(500);
    await until((one) => runs("dispatcher")(one) && one.pid !== pid);
  });

  test("is refused while another one runs there", async () => {
    const first = start();
    await first.until(runs("dispatcher"));
    const second = start();
    expect(await second.closed).toBe(2);
    expect(second.stderr()).toMatch(/^[A-Z][^\n]* in use [^\n]*\n$/);
  });
});

test("start reports that its port is taken, and ends with 2", async () => {
  const other = createServer();
  await once(other.listen(0, "127.0.0.1"), "listening");
  const { port } = other.address() as { port: number };
  const { closed, stderr } = start({ PORT: `${port}` });
  expect(await closed).toBe(2);
  expect(stderr()).toContain(`The API cannot listen on HOST 127.0.0.1, PORT ${port} (EADDRINUSE): another`);
  other.close();
});

test("start ends when its configuration cannot be used, and says why", async () => {
  const unmade = join(stateDir, "unmade");
  const { closed, stderr, announced } = start({ TARGET_CA_FILE: "/nobody/has/this.pem", STATE_DIR: unmade });
  expect(await closed).toBe(2);
  expect(stderr()).toBe("TARGET_CA_FILE (/nobody/has/this.pem) cannot be read (ENOENT).\n");
  expect(announced.map(({ event }) => event)).toEqual([]);
  expect(existsSync(unmade)).toBe(false);
});

test("the API ends when the port of its metrics is taken", async () => {
  const other = createServer();
  await once(other.listen(0, "127.0.0.1"), "listening");
  const { port } = other.address() as { port: number };
  const { until, child } = start();
  await until(runs("dispatcher"));
  const { code, stderr } = await runSealpost(["serve"], {
    env: { STATE_DIR: stateDir, PORT: "0", METRICS_PORT: `${port}` },
  });
  expect(code).toBe(2);
  expect(stderr).toContain(`METRICS_PORT ${port} (EADDRINUSE)`);
  child.kill("SIGTERM");
  other.close();
});

test("start waits for a database that is down, and ends on SIGTERM", async () => {
  const { child, until, closed } = start({ DATABASE_URL: "postgres://ada:hunter2@127.0.0.1:1/sealpost" });
  const away = await until((one) => one.event === "database_away");
  expect(JSON.stringify(away)).not.toContain("hunter2");
  child.kill("SIGTERM");
  expect(await closed).toBe(0);
});
