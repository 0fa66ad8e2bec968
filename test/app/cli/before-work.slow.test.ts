// What `serve` and `dispatch` do about a database that they cannot work with.
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createAccount } from "../../../src/accounts/accounts-sql.ts";
import { isComplaint, type LogLine } from "../../support/child-processes.ts";
import { createEmptyDatabase, createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { createTestAccount, SECRETS_KEY } from "../../support/installation.ts";
import { runProcess, SealpostProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";

const OTHER_KEY = Buffer.alloc(32, 8);
const KEYS = { right: SECRETS_KEY.toString("base64"), wrong: OTHER_KEY.toString("base64") };
const REFUSAL =
  /^SECRETS_KEY is not the key that this database's secrets are encrypted with\. Use [^\n]+\.\n$/;
const COMMANDS = ["serve", "dispatch"] as const;

const databases: TestDatabase[] = [];
const running: SealpostProcess[] = [];
let database: TestDatabase;
beforeEach(async () => {
  database = await createTestDatabase();
  databases.push(database);
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.stop()));
  await Promise.all(databases.splice(0).map((one) => one.drop()));
});

const environment = (key: keyof typeof KEYS, { url } = database) => ({
  DATABASE_URL: url,
  SECRETS_KEY: KEYS[key],
  PORT: "0",
  METRICS_PORT: "0",
});

function run(command: string, key: keyof typeof KEYS, target = database) {
  return runProcess([command], { env: environment(key, target) });
}

type Started = SealpostProcess & { readonly told: LogLine };

/** Resolves when it says where it listens: one that waits is not ready. */
async function start(
  command: (typeof COMMANDS)[number],
  key: keyof typeof KEYS = "right",
  target = database,
): Promise<Started> {
  const process = new SealpostProcess([command], environment(key, target));
  running.push(process);
  const told = await process.waitForLine(({ metrics_url }) => metrics_url !== undefined);
  return Object.assign(process, { told });
}

async function readiness({ told }: Started): Promise<string> {
  return await (await fetch(`${told.metrics_url}/readyz`)).text();
}

async function emptyDatabase(): Promise<TestDatabase> {
  const empty = await createEmptyDatabase();
  databases.push(empty);
  return empty;
}

const canary = async (): Promise<string | null> =>
  (await database.pool.query("select secrets_canary from sealpost.settings")).rows[0].secrets_canary;

describe("a wrong SECRETS_KEY", () => {
  test.each([...COMMANDS, "start", "migrate"])("%s ends with one line that says so", async (command) => {
    await createTestAccount(database);
    const { code, stderr } = await run(command, "wrong");
    expect([code, stderr]).toEqual([2, expect.stringMatching(REFUSAL)]);
  });

  test.each(COMMANDS)(
    "makes a running %s not ready, on both ports, as long as it is wrong",
    async (command) => {
      const process = await start(command);
      expect(await readiness(process)).toBe('{"status":"ok"}');
      // It was right while nothing was sealed.
      await createAccount(database.pool, "First", OTHER_KEY);
      const answer = JSON.parse(await readiness(process));
      expect(answer).toEqual({
        status: "not_ready",
        hindrances: [expect.stringContaining("SECRETS_KEY is not")],
      });
      if (command === "serve") expect((await fetch(`${process.told.url}/readyz`)).status).toBe(503);
      await database.pool.query("update sealpost.settings set secrets_canary = null");
      await database.pool.query("delete from sealpost.signing_secrets");
      expect(await readiness(process)).toBe('{"status":"ok"}');
    },
  );

  test("is found in a database of version 1.0, where migrate with the right one seals the canary", async () => {
    await createTestAccount(database);
    await database.pool.query("update sealpost.settings set secrets_canary = null");
    expect(await run("dispatch", "wrong")).toMatchObject({ code: 2, stderr: expect.stringMatching(REFUSAL) });
    expect(await run("migrate", "wrong")).toMatchObject({ code: 2, stderr: expect.stringMatching(REFUSAL) });
    // In development without one: it must not make up a key here.
    const { SECRETS_KEY: _, ...withoutKey } = environment("right");
    expect(await runProcess(["migrate"], { env: withoutKey })).toMatchObject({ code: 0 });
    expect(await canary()).toBeNull();
    expect(await readiness(await start("dispatch"))).toBe('{"status":"ok"}');
    expect(await run("migrate", "right")).toMatchObject({ code: 0 });
    expect(await canary()).not.toBeNull();
    expect(await run("dispatch", "wrong")).toMatchObject({ code: 2, stderr: expect.stringMatching(REFUSAL) });
  });

  test("migrate of a new database makes no key its own: nothing is sealed", async () => {
    const empty = await emptyDatabase();
    expect(await run("migrate", "wrong", empty)).toMatchObject({ code: 0 });
    expect(await readiness(await start("serve", "right", empty))).toBe('{"status":"ok"}');
  });
});

describe("while SECRETS_KEY is rotated", () => {
  const withPrevious = (key: keyof typeof KEYS, previous: keyof typeof KEYS) => ({
    ...environment(key),
    SECRETS_KEY_PREVIOUS: KEYS[previous],
  });

  test.each(COMMANDS)(
    "%s is ready with the key among its two, and with the new one in the end",
    async (command) => {
      await createTestAccount(database);
      const ready = async (env: Record<string, string>) => {
        const process = new SealpostProcess([command], env);
        running.push(process);
        const told = await process.waitForLine(({ metrics_url }) => metrics_url !== undefined);
        expect(await readiness(Object.assign(process, { told }))).toBe('{"status":"ok"}');
        return Object.assign(process, { told });
      };
      await ready(withPrevious("right", "wrong"));
      const swapped = await ready(withPrevious("wrong", "right"));
      const env = withPrevious("wrong", "right");
      expect(await runProcess(["secrets", "reseal"], { env })).toMatchObject({ code: 0 });
      expect(await readiness(swapped)).toBe('{"status":"ok"}');
      await ready(environment("wrong"));
      expect(await run(command, "right")).toMatchObject({ code: 2, stderr: expect.stringMatching(REFUSAL) });
    },
  );
});

describe("before migrate", () => {
  test.each(COMMANDS)("%s says once what to do, and begins when it is done", async (command) => {
    const empty = await emptyDatabase();
    const process = await start(command, "right", empty);
    expect(JSON.parse(await readiness(process))).toEqual({
      status: "not_ready",
      hindrances: ["The database has no Sealpost tables yet: run migrate."],
    });
    expect((await fetch(`${process.told.metrics_url}/healthz`)).status).toBe(200);
    expect(await run("migrate", "right", empty)).toMatchObject({ code: 0 });
    const timeout = patience(20_000);
    await expect.poll(() => readiness(process), { timeout }).toBe('{"status":"ok"}');
    await expect.poll(() => process.output(), { timeout }).toContain('"the database is migrated"');
    if (command === "dispatch")
      await expect.poll(() => process.output(), { timeout }).toContain('"dispatching"');
    const warnings = process.lines.filter(isComplaint);
    expect(warnings).toMatchObject([
      { level: "warn", msg: expect.stringContaining("run `sealpost migrate`") },
    ]);
    expect(await process.stop()).toBe(0);
  });

  test.each(COMMANDS)(
    "%s waits for a database that lets nobody in, and then for its migration",
    async (command) => {
      const empty = await emptyDatabase();
      const name = new URL(empty.url).pathname.slice(1);
      await database.pool.query(`alter database ${name} allow_connections false`);
      const process = await start(command, "right", empty);
      await process.waitForLine(({ msg }) => /cannot be used yet \(.*not currently accepting/.test(`${msg}`));
      await database.pool.query(`alter database ${name} allow_connections true`);
      await process.waitForLine(({ msg }) => /run `sealpost migrate`/.test(`${msg}`));
      expect(await run("migrate", "right", empty)).toMatchObject({ code: 0 });
      await process.waitForLine(({ msg }) => msg === "the database is migrated");
      expect(process.lines.filter(isComplaint)).toHaveLength(2);
    },
  );

  test.each(COMMANDS)("%s that waits stops when it is asked to", async (command) => {
    const process = await start(command, "right", await emptyDatabase());
    expect(await process.stop()).toBe(0);
    expect(process.output()).not.toContain('"dispatching"');
  });

  test("a file of this version that is not applied is waited for, too", async () => {
    await database.pool.query("delete from sealpost.migrations where name = 'workspace/0001_workspace.sql'");
    await database.pool.query("drop schema workspace cascade");
    const process = await start("dispatch");
    expect(await readiness(process)).toContain(
      "The migration workspace/0001_workspace.sql is not applied: run migrate.",
    );
    expect(await run("migrate", "right")).toMatchObject({ code: 0 });
    await expect.poll(() => process.output(), { timeout: patience(20_000) }).toContain('"dispatching"');
  });

  test("a process that waited ends when the key turns out to be wrong", async () => {
    await createTestAccount(database);
    await database.pool.query("alter schema sealpost rename to not_yet");
    const process = await start("dispatch", "wrong");
    await database.pool.query("alter schema not_yet rename to sealpost");
    expect((await process.finished).code).toBe(2);
    expect(process.output()).toContain("SECRETS_KEY is not the key");
  });
});
