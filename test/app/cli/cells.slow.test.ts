import { afterEach, beforeEach, expect, test } from "vitest";
import { runSealpost } from "../../support/command.ts";
import { createEmptyDatabase, createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { SECRETS_KEY } from "../../support/installation.ts";
import { runProcess, type SealpostProcess, startProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";

let database: TestDatabase;
const running: SealpostProcess[] = [];

beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.stop()));
  await database.drop();
});

const ANOTHER = "The database belongs to the cell c1, and CELL is c2: correct CELL or DATABASE_URL.\n";

function run(args: readonly string[], cell?: string, url = database.url) {
  const own = cell === undefined ? {} : { CELL: cell };
  const env = { DATABASE_URL: url, SECRETS_KEY: SECRETS_KEY.toString("base64"), PORT: "0", ...own };
  return ["serve", "dispatch", "start"].includes(args[0]!)
    ? runProcess(args, { env })
    : runSealpost(args, { env });
}

async function start(command: "serve" | "dispatch", env: Record<string, string>): Promise<SealpostProcess> {
  const started = await startProcess(command, { DATABASE_URL: database.url, ...env });
  running.push(started);
  return started;
}

const cellOf = async () => (await database.pool.query("select cell from sealpost.settings")).rows[0].cell;

async function readiness({ metricsUrl }: SealpostProcess): Promise<string> {
  return await (await fetch(`${metricsUrl}/readyz`)).text();
}

test("migrate writes the cell once, and another cell's migrate changes nothing", async () => {
  expect(await run(["migrate"])).toMatchObject({ code: 0 });
  expect(await cellOf()).toBeNull();
  expect(await run(["migrate"], "c1")).toMatchObject({ code: 0 });
  expect(await cellOf()).toBe("c1");
  const refused = await run(["migrate"], "c2");
  expect(refused).toMatchObject({ code: 2, stderr: ANOTHER });
  expect(await cellOf()).toBe("c1");
  // Without a cell of its own it goes on as ever, and forgets nothing.
  expect(await run(["migrate"])).toMatchObject({ code: 0 });
  expect(await cellOf()).toBe("c1");
});

test("a new database is migrated and made the cell's in one go", async () => {
  const empty = await createEmptyDatabase();
  try {
    expect(await run(["migrate"], "c1", empty.url)).toMatchObject({ code: 0 });
    expect(await run(["account", "list", "--json"], "c1", empty.url)).toMatchObject({ code: 0 });
    expect(await run(["account", "list"], "c2", empty.url)).toMatchObject({ code: 2, stderr: ANOTHER });
  } finally {
    await empty.drop();
  }
});

test.each(["serve", "dispatch", "start"])("%s refuses another cell's database", async (command) => {
  await database.pool.query("update sealpost.settings set cell = 'c1'");
  const { code, stderr, stdout } = await run([command], "c2");
  expect(command === "start" ? `${stderr}${stdout}` : stderr).toContain(ANOTHER.trim());
  expect(code).toBe(2);
});

test.each(["serve", "dispatch"] as const)(
  "%s of the same cell says it in its log and metrics",
  async (command) => {
    await database.pool.query("update sealpost.settings set cell = 'c1'");
    const started = await start(command, { CELL: "c1" });
    expect(await readiness(started)).toBe('{"status":"ok"}');
    expect(JSON.parse(await started.nextLine())).toMatchObject({ process: command, cell: "c1" });
    const text = await (await fetch(`${started.metricsUrl}/metrics`)).text();
    expect(text).toMatch(/^sealpost_build_info\{[^}]*cell="c1"\} 1$/m);
  },
);

test("a process without a cell works on any cell's database, as ever", async () => {
  await database.pool.query("update sealpost.settings set cell = 'c1'");
  expect(await readiness(await start("serve", {}))).toBe('{"status":"ok"}');
});

test(
  "a database that has no cell yet is waited for, and one that becomes another's is let go",
  async () => {
    const serve = await start("serve", { CELL: "c1" });
    expect(await readiness(serve)).toContain(
      "The database belongs to no cell yet, and CELL is c1: run migrate",
    );
    expect(await run(["migrate"], "c1")).toMatchObject({ code: 0 });
    await expect.poll(() => readiness(serve), { timeout: patience(5_000) }).toBe('{"status":"ok"}');

    // As when its name leads to another server from now on: connections end, and new ones go there.
    await database.pool.query("update sealpost.settings set cell = 'c2'");
    await database.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid()`,
    );
    await expect
      .poll(() => readiness(serve), { timeout: patience(5_000) })
      .toContain("The database belongs to the cell c2, and CELL is c1");
    const answer = await fetch(`${serve.url}/v1/webhooks/deliveries`, {
      headers: { authorization: `Bearer svc_test_${"a".repeat(43)}` },
    });
    expect(answer.status).toBe(503);
    // One that has just been made has asked nothing yet.
    const { rows } = await database.pool.query(
      `select query from pg_stat_activity
       where datname = current_database() and application_name = 'sealpost serve'
         and query <> '' and query not like '%cell%'`,
    );
    expect(rows).toEqual([]);
  },
  patience(30_000),
);
