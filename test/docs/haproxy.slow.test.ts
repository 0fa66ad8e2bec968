import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { migrate } from "../../src/base/database/migrate.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/base/embedded/embedded.ts";
import { TARGET_KEY } from "../support/cells.ts";
import { untilFinished } from "../support/child-processes.ts";
import { runSealpost } from "../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { type RunningHaproxy, startHaproxy } from "../support/haproxy.ts";
import { createTestAccount, SECRETS_KEY } from "../support/installation.ts";
import { program } from "../support/programs.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { ask, type Json } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { makeThrowAwayFolder } from "../support/throw-away-folder.ts";
import { patience } from "../support/time-limits.ts";

const scaling = readFileSync(new URL("../../docs/scaling.md", import.meta.url), "utf8");
const mapScript = /<!-- script: maps -->\n```sh\n([\s\S]*?)```/.exec(scaling)![1]!;

type Cell = {
  readonly name: "c1" | "c2";
  readonly url: string;
  readonly pool: pg.Pool;
  readonly serve: SealpostProcess;
  readonly dispatch: SealpostProcess;
  readonly accountId: string;
  readonly key: string;
};

/** More than both processes of a cell have places, for readers and for others. */
const READERS = 4_100;
const SCOPES = "analyses:publish,analyses:read,webhooks:read,webhooks:write";

/** The first cell was there before there were cells. */
const BRANDS = { c1: "svc", c2: "c2" } as const;

let receiver: Receiver;
let targets: Record<string, string>;

function envOf(name: Cell["name"], url: string): Record<string, string> {
  return {
    DATABASE_URL: url,
    CELL: name,
    API_KEY_BRAND: `${BRANDS[name]},svc,c2`,
    SECRETS_KEY: (name === "c1" ? SECRETS_KEY : TARGET_KEY).toString("base64"),
    ...targets,
    RATE_LIMIT_REQUESTS: "1000000",
    TRUST_PROXY: "127.0.0.1",
  };
}

async function run(name: Cell["name"], url: string, ...args: readonly string[]) {
  const { code, stdout, stderr } = await runSealpost([...args, "--json"], { env: envOf(name, url) });
  expect({ code, stderr: code === 0 ? "" : stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

async function startCell(name: "c1" | "c2", url: string): Promise<Cell> {
  await run(name, url, "migrate");
  const { account_id: accountId } = await run(name, url, "account", "create", "--name", name);
  const made = await run(name, url, "key", "create", "--account", accountId, "--scopes", SCOPES);
  const endpointUrl = receiver.url(`/${name}`).href;
  await run(name, url, "endpoint", "set", "--account", accountId, "--url", endpointUrl);
  const serve = await startProcess("serve", envOf(name, url));
  const dispatch = await startProcess("dispatch", envOf(name, url));
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  // A server that is stopped cuts idle connections.
  pool.on("error", () => undefined);
  return {
    name,
    url,
    pool,
    serve,
    dispatch,
    accountId,
    key: made.api_key,
  };
}

describe("two cells behind HAProxy", () => {
  let folder: string;
  let dataDir: string;
  let database: TestDatabase;
  let server: EmbeddedPostgres;
  let c1: Cell;
  let c2: Cell;
  let moved: { readonly accountId: string; readonly key: string };
  let staffKey: string;
  let proxy: RunningHaproxy;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "sealpost-cells-"));
    receiver = await startReceiver();
    targets = targetsEnv([receiver]);
    dataDir = await makeThrowAwayFolder();
    database = await createTestDatabase();
    server = await startEmbeddedPostgres({ dataDir, settings: { fsync: "off" } });
    await migrate({ databaseUrl: server.databaseUrl });
    [c1, c2] = await Promise.all([startCell("c1", database.url), startCell("c2", server.databaseUrl)]);
    moved = await makeMoved();
    staffKey = (await run("c1", c1.url, "key", "create", "--staff", "--scopes", SCOPES)).api_key;
    await copyStaffKey();
    const cells = { c1: c1.serve.url, c2: c2.serve.url };
    proxy = await startHaproxy({ cells, ...(await makeMaps()) });
  }, patience(60_000));
  afterAll(async () => {
    await proxy?.stop();
    await Promise.all([c1, c2].flatMap((cell) => [cell?.serve.stop(), cell?.dispatch.stop()]));
    await Promise.all([c1, c2].map((cell) => cell?.pool.end()));
    await server.stop();
    await database.drop();
    await receiver.close();
    for (const each of [folder, dataDir]) rmSync(each, { recursive: true, force: true });
  });

  /** An account of c1 that lives in c2 now, with the key that c1 made. */
  async function makeMoved() {
    const { account_id: accountId } = await run("c1", c1.url, "account", "create", "--name", "moved");
    const made = await run("c1", c1.url, "key", "create", "--account", accountId, "--scopes", SCOPES);
    const keyFile = join(folder, "c2-key");
    writeFileSync(keyFile, TARGET_KEY.toString("base64"));
    const there = ["--to", c2.url, "--target-secrets-key-file", keyFile];
    await run("c1", c1.url, "account", "move", "--account", accountId, ...there);
    return { accountId, key: made.api_key as string };
  }

  /** As docs/scaling.md has it copied. */
  async function copyStaffKey(): Promise<void> {
    const rows = "select json_agg(t) as rows from sealpost.api_keys as t where account_id is null";
    const found = await c1.pool.query(rows);
    await c2.pool.query(
      "insert into sealpost.api_keys select * from json_populate_recordset(null::sealpost.api_keys, $1)",
      [JSON.stringify(found.rows[0].rows)],
    );
  }

  /** As docs/scaling.md has them made, with a file of variables for each cell. */
  async function runMapScript(environments: readonly Record<string, string>[]) {
    const files = environments.map((environment, n) => {
      const file = join(folder, `${n}.env`);
      const lines = Object.entries(environment).map(([name, value]) => `${name}='${value}'\n`);
      writeFileSync(file, lines.join(""));
      return `'${file}'`;
    });
    const command = `cd '${folder}' && npm() { command npm --prefix '${process.cwd()}' "$@"; } && ${mapScript}
      make_maps ${files.join(" ")}`;
    const child = spawn("bash", ["-c", command], { stdio: ["ignore", "pipe", "pipe"] });
    return await untilFinished(child);
  }

  const readMaps = () => ({
    keysMap: readFileSync(join(folder, "keys.map"), "utf8"),
    accountsMap: readFileSync(join(folder, "accounts.map"), "utf8"),
  });

  async function makeMaps() {
    const { code, stderr } = await runMapScript([envOf("c1", c1.url), envOf("c2", c2.url)]);
    expect(code, stderr).toBe(0);
    return readMaps();
  }

  /** The cell that a request was sent to, by the account that it stored a delivery for. */
  async function publishBy(key: string, headers: Record<string, string> = {}) {
    const body = { analysis: { id: randomUUID(), status: "succeeded" } };
    return await ask(proxy.url, "POST", "/v1/analyses", { key, body, headers });
  }

  const deliveriesOf = (key: string) => ask(proxy.url, "GET", "/v1/webhooks/deliveries", { key });

  const countIn = async ({ pool }: Cell, accountId: string): Promise<number> => {
    const text = "select count(*)::integer as n from sealpost.deliveries where account_id = $1";
    return (await pool.query(text, [accountId])).rows[0].n;
  };

  test("the maps have each account once, and stay as they are when a cell has no name", async () => {
    const before = readMaps();
    const cellOf = new Map(
      before.accountsMap
        .trim()
        .split("\n")
        .map((line) => line.split(" ") as [string, string]),
    );
    expect(cellOf).toEqual(
      new Map([
        [c1.accountId, "c1"],
        [c2.accountId, "c2"],
        [moved.accountId, "c2"],
      ]),
    );
    expect(before.keysMap.trim().split("\n")).toHaveLength(3);
    const nameless = await createTestDatabase();
    const { CELL: _, ...environment } = envOf("c2", nameless.url);
    await createTestAccount(nameless);
    const { code, stderr } = await runMapScript([envOf("c1", c1.url), environment]);
    await nameless.drop();
    expect({ code: code === 0, stderr }).toEqual({
      code: false,
      stderr: expect.stringContaining("CELL is unset in this database"),
    });
    expect(readMaps()).toEqual(before);
  });

  test("the configuration is valid", async () => {
    const { code, stderr } = await untilFinished(
      spawn(program("haproxy"), ["-c", "-f", proxy.file], { stdio: ["ignore", "pipe", "pipe"] }),
    );
    expect(code, stderr).toBe(0);
    expect(stderr).not.toMatch(/warning|alert/i);
  });

  test("a key leads to its account's cell, a moved account's to where it is now", async () => {
    for (const [cell, accountId, key] of [
      [c1, c1.accountId, c1.key],
      [c2, c2.accountId, c2.key],
      [c2, moved.accountId, moved.key],
    ] as const) {
      expect(await publishBy(key)).toMatchObject({ status: 202 });
      expect(await countIn(cell, accountId)).toBe(1);
    }
    expect(moved.key).toMatch(/^svc_/);
    // The scheme in whatever case, as the API itself has it.
    const lower = { authorization: `bearer ${c2.key}` };
    const path = "/v1/webhooks/deliveries";
    expect(await ask(proxy.url, "GET", path, { key: null, headers: lower })).toMatchObject({ status: 200 });
  });

  test("a staff key works in each cell: the account that it names decides", async () => {
    for (const [cell, accountId, n] of [
      [c1, c1.accountId, 2],
      [c2, c2.accountId, 2],
      [c2, moved.accountId, 2],
    ] as const) {
      const named = { "x-account-id": accountId.toUpperCase() };
      expect(await publishBy(staffKey, named)).toMatchObject({ status: 202 });
      expect(await countIn(cell, accountId)).toBe(n);
    }
  });

  test("a key that is newer than the map goes where it was made, and a stranger's is refused", async () => {
    for (const cell of [c1, c2]) {
      const args = ["--account", cell.accountId, "--scopes", "webhooks:read"];
      const made = await run(cell.name, cell.url, "key", "create", ...args);
      const answer = await ask(proxy.url, "GET", "/v1/webhooks/deliveries", { key: made.api_key });
      expect(answer).toMatchObject({ status: 200 });
      expect((answer.body.items as Json[]).length).toBe(2);
    }
    const stranger = `c2_test_${"x".repeat(43)}`;
    expect(await ask(proxy.url, "GET", "/v1/webhooks/deliveries", { key: stranger })).toMatchObject({
      status: 401,
    });
    expect(await ask(proxy.url, "GET", "/v1/webhooks/deliveries", { key: null })).toMatchObject({
      status: 401,
    });
  });

  test("a cell's own name leads to it, whoever asks", async () => {
    const statusAt = async (host: string, key: string, path = "/v1/webhooks/deliveries") => {
      const headers = { host, authorization: `Bearer ${key}` };
      const call = request(`${proxy.url}${path}`, { headers }).end();
      const [response] = await once(call, "response");
      response.resume();
      return response.statusCode;
    };
    expect(await statusAt("C1.api.example.com:443", c1.key)).toBe(200);
    expect(await statusAt("c2.api.example.com", c2.key)).toBe(200);
    expect(await statusAt("c2.api.example.com", c1.key), "unknown there").toBe(401);
    // A reference from before the move: at c1 it would be 409.
    expect(await statusAt("c1.api.example.com", moved.key, "/v1/%61nalyses/none")).toBe(404);
  });

  /** What a customer of c1 sees: each request published, the slowest answer, and each webhook once. */
  async function publishThrough(isOver: () => boolean) {
    const accepted: string[] = [];
    const refused: unknown[] = [];
    let slowestMs = 0;
    const client = async () => {
      while (!isOver()) {
        const sentAt = performance.now();
        const { status, body } = await publishBy(c1.key);
        slowestMs = Math.max(slowestMs, performance.now() - sentAt);
        if (status === 202) accepted.push(String(body.delivery_id));
        else refused.push({ status, body });
      }
    };
    await Promise.all([client(), client(), client(), client()]);
    const arrived = () =>
      receiver.requests
        .filter(({ path }) => path === "/c1")
        .map(({ body }) => JSON.parse(body.toString()).id as string)
        .filter((id) => accepted.includes(id))
        .sort();
    await expect.poll(arrived, { timeout: patience(10_000) }).toEqual([...accepted].sort());
    return { accepted: accepted.length, refused, slowestMs };
  }

  /** Until the proxy says so itself of c2, twenty times in a row. */
  async function untilUnavailable(): Promise<void> {
    const problem = {
      type: "https://api.example.com/errors/temporarily_unavailable",
      title: expect.any(String),
      status: 503,
      code: "temporarily_unavailable",
      request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    };
    // What went to a process that hangs waits for it.
    const bodyOf = async () => {
      const asked = deliveriesOf(moved.key).catch(() => null);
      return (await Promise.race([asked, wait(patience(500))]))?.body;
    };
    await expect.poll(bodyOf, { timeout: patience(20_000) }).toEqual(problem);
    for (let n = 0; n < 20; n += 1) expect(await bodyOf()).toEqual(problem);
  }

  test(
    "readers of the feed who wait, more than it takes, keep nobody else out, and no place once they have gone",
    async () => {
      const countWaiting = async () => {
        const metrics = await (await fetch(new URL("/metrics", c1.serve.metricsUrl))).text();
        return Number(/^sealpost_api_reads_waiting.* (\d+)$/m.exec(metrics)?.[1]);
      };
      const { port } = new URL(proxy.url);
      // One that has published nothing: there is nothing to answer with.
      const { account_id } = await run("c1", c1.url, "account", "create", "--name", "quiet");
      const made = await run("c1", c1.url, "key", "create", "--account", account_id, "--scopes", SCOPES);
      const headers = { authorization: `Bearer ${made.api_key}` };
      const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY });
      // The path in whatever spelling, as the API has it.
      const readers = Array.from({ length: READERS }, (_, n) => {
        const path = `/v1/webhooks/${n % 2 ? "events" : "%65vents"}?wait=25`;
        const reader = request({ agent, host: "127.0.0.1", port, path, headers }).on(
          "error",
          () => undefined,
        );
        return reader.on("response", (response) => response.resume()).end();
      });
      const within = { timeout: patience(20_000) };
      await expect.poll(countWaiting, within).toBe(2_000);
      for (let n = 0; n < 10; n++) {
        const askedAtMs = performance.now();
        expect((await deliveriesOf(c1.key)).status).toBe(200);
        expect(performance.now() - askedAtMs).toBeLessThan(patience(1_000));
      }
      for (const reader of readers) reader.destroy();
      await expect.poll(countWaiting, within).toBe(0);
    },
    patience(60_000),
  );

  const CROWD = 300;

  test(
    "while a cell hangs, with hundreds of its customers' requests, those of the other notice nothing",
    async () => {
      c2.serve.freeze();
      const crowd = Array.from({ length: CROWD }, () => deliveriesOf(moved.key).catch(() => null));
      let isKnown = false;
      const known = untilUnavailable().finally(() => {
        isKnown = true;
      });
      const seen = await publishThrough(() => isKnown);
      await known;
      expect(seen.refused).toEqual([]);
      expect(seen.accepted).toBeGreaterThan(20);
      expect(seen.slowestMs).toBeLessThan(patience(1_000));
      c2.serve.thaw();
      await Promise.all(crowd);
      await expect
        .poll(async () => (await deliveriesOf(moved.key)).status, { timeout: patience(20_000) })
        .toBe(200);
    },
    patience(60_000),
  );

  test(
    "while a cell is down, with its database, customers of the other notice nothing",
    async () => {
      await Promise.all([c2.serve.kill(), c2.dispatch.kill()]);
      await server.stop();
      let isKnown = false;
      const known = untilUnavailable().finally(() => {
        isKnown = true;
      });
      const seen = await publishThrough(() => isKnown);
      await known;
      expect(seen.refused).toEqual([]);
      expect(seen.slowestMs).toBeLessThan(patience(1_000));
    },
    patience(60_000),
  );
});
