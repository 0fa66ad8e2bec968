import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { STEP_CONNECTIONS } from "../../src/app/database.ts";
import { dispatcherConnections } from "../../src/app/dispatch-process.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { variables } from "../../src/base/config/variables.ts";
import { migrate } from "../../src/base/database/migrate.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import {
  begin,
  changeRows,
  countRows,
  createTestAccount,
  deleteRows,
  insertAccount,
  insertRow,
  publish,
  rowOf,
  rowsOf,
} from "../support/installation.ts";
import { declaredMetrics } from "../support/metrics-table.ts";
import { startReceiver } from "../support/receiver.ts";
import { startTestApi } from "../support/sealpost-api.ts";

const [document = "", runbook = "", metrics = ""] = ["operating", "runbook", "metrics"].map((name) =>
  readFileSync(new URL(`../../docs/${name}.md`, import.meta.url), "utf8"),
);

/** The documents' SQL, by whom it is for. */
const blocks = [...`${document}${runbook}`.matchAll(/<!-- sql: (\w+) -->\n```sql\n([\s\S]*?)```/g)].map(
  ([, role = "", sql = ""]) => ({ role, sql, begins: sql.trim().split("\n", 1)[0] ?? "" }),
);
const sqlOf = (role: string, part: string) =>
  blocks.find((block) => block.role === role && block.sql.includes(part))?.sql ?? "";

test("the documents name metrics and variables that exist, and their defaults", () => {
  const declared = declaredMetrics().map(({ name }) => name);
  const named = [...`${document}${runbook}${metrics}`.matchAll(/`(sealpost_[a-z_]+)/g)].map(
    ([, name = ""]) => name,
  );
  expect(named.filter((name) => !declared.some((one) => one === name))).toEqual([]);
  const budgets = /### Budgets\n([\s\S]*?)\n## /.exec(document)?.[1] ?? "";
  const rows = [...budgets.matchAll(/^\| [^|]+ \| ([\d,]*)[^|]* \| `([A-Z_]+)` \|/gm)];
  const written = rows.map(([, value = "", name = ""]) => [name, value.replaceAll(",", "") || null]);
  const defaults = new Map(Object.entries(variables).map(([name, { fallback }]) => [name, fallback]));
  expect(written).toHaveLength(1);
  expect(written).toEqual(written.map(([name]) => [name, defaults.get(name ?? "")]));
});

test("the document counts a dispatcher's connections, and those of its other processes", () => {
  const own = Number(variables.DATABASE_CONNECTIONS_MAX.fallback);
  const { dispatch, wakeups, general } = dispatcherConnections(own);
  expect(dispatch + wakeups + general).toBe(own);
  const all = own + STEP_CONNECTIONS + 2;
  expect(document).toMatch(new RegExp(`^\\| \`serve\` \\|.*\\| ${own} \\|$`, "m"));
  const others = `${STEP_CONNECTIONS} for its step process, and briefly 2 more`;
  expect(document).toMatch(new RegExp(`^\\| \`dispatch\` \\|.*\\| ${own}, ${others} \\|$`, "m"));
  expect(document).toContain(`${own} per \`serve\``);
  expect(document).toContain(`${all} per \`dispatch\``);
  expect(document).toContain(`Each adds ${all} connections`);
});

test("the configuration takes the way out to nowhere that a copy of production is given", () => {
  const url = /`EGRESS_PROXY_URL=(\S+)`/.exec(document)?.[1];
  expect(readConfig({ EGRESS_PROXY_URL: url }).egressProxyUrl).toBe("http://127.0.0.1:9");
});

describe("the roles and grants that it gives", () => {
  const suffix = randomBytes(4).toString("hex");
  const roles = {
    sealpost: `sealpost_${suffix}`,
    pipeline: `pipeline_${suffix}`,
    support: `support_${suffix}`,
  };
  const name = `sealpost_roles_${suffix}`;
  const { adminUrl } = inject("testDatabases");
  const urlOf = (role: string | null) => {
    const url = new URL(adminUrl);
    url.pathname = `/${name}`;
    if (role !== null) Object.assign(url, { username: role, password: "of-a-test" });
    return url.href;
  };
  const named = (sql: string) =>
    sql.replaceAll(/\b(role|to) (sealpost|pipeline|support)\b/g, (_, word, role: keyof typeof roles) => {
      return `${word} ${roles[role]}`;
    });

  const admin = new pg.Client({ connectionString: adminUrl });
  let administrator: pg.Client;
  let pools: Record<keyof typeof roles, pg.Pool>;

  beforeAll(async () => {
    await admin.connect();
    await admin.query(`create database ${name}`);
    administrator = new pg.Client({ connectionString: urlOf(null) });
    await administrator.connect();
    await administrator.query(named(sqlOf("administrator", "create role sealpost")));
    await administrator.query(`create role ${roles.pipeline} login; create role ${roles.support} login`);
    for (const role of Object.values(roles)) await admin.query(`alter role ${role} password 'of-a-test'`);
    await migrate({ databaseUrl: urlOf(roles.sealpost) });
    const poolOf = (role: string) => new pg.Pool({ connectionString: urlOf(role), max: 3 });
    pools = {
      sealpost: poolOf(roles.sealpost),
      pipeline: poolOf(roles.pipeline),
      support: poolOf(roles.support),
    };
    await pools.sealpost.query(named(sqlOf("owner", "publish_analysis(uuid")));
    await pools.sealpost.query(named(sqlOf("owner", "to support")));
  });
  afterAll(async () => {
    for (const pool of Object.values(pools)) await pool.end();
    for (const role of Object.values(roles)) await administrator.query(`drop owned by ${role}`);
    await administrator.end();
    await admin.query(`drop database ${name} with (force)`);
    for (const role of Object.values(roles)) await admin.query(`drop role ${role}`);
    await admin.end();
  });

  test("let the pipeline publish, the service deliver and answer, and nobody do more", async () => {
    const receiver = await startReceiver();
    const database = { url: urlOf(roles.sealpost), pool: pools.sealpost, drop: async () => undefined };
    const dispatcher = startTestDispatcher(database, [receiver]);
    const api = await startTestApi(database);
    try {
      const { accountId } = await createTestAccount(database, receiver.url("/").href);
      const id = await publish(pools.pipeline, accountId, '{"id":"a-1","status":"succeeded"}');
      await dispatcher.waitForAttempts(1);
      expect(dispatcher.failures).toEqual([]);
      const key = await api.newKey(accountId);
      const asked = await api.ask("GET", `/v1/webhooks/deliveries/${id}`, { key });
      expect(asked.body).toMatchObject({ id, status: "succeeded" });
    } finally {
      await api.close();
      await dispatcher.stop();
      await receiver.close();
    }
    expect(await rowsOf(pools.support, "deliveries")).toMatchObject([{ status: "succeeded" }]);
    // As after a rollback, whose dispatchers prove nobody.
    await pools.sealpost.query("delete from sealpost.receivers");
    for (const line of sqlOf("rollback", "prove_from_log").trim().split("\n"))
      await pools.sealpost.query(line);
    expect(await rowsOf(pools.sealpost, "receivers")).toMatchObject([{ origin: receiver.url().origin }]);
  });

  test.each([
    ["pipeline", "select from sealpost.deliveries"],
    ["pipeline", "select from sealpost.signing_secrets"],
    ["pipeline", "select graphile_worker.add_job('deliver')"],
    ["pipeline", "select sealpost.publish('{}', '{}', '{}', false, now())"],
    ["support", "select from sealpost.signing_secrets"],
    ["support", "select from sealpost.api_keys"],
    ["support", "select from sealpost.bodies"],
    ["support", "update sealpost.deliveries set status = 'succeeded'"],
    ["support", "select sealpost.publish_analysis(null, null)"],
  ] as const)("keep %s from: %s", async (role, sql) => {
    await expect(pools[role].query(sql)).rejects.toMatchObject({ code: "42501" });
  });

  test("let the service see another role's forgotten transaction, and end it", async () => {
    const end = "select pg_terminate_backend(PID)";
    expect(runbook).toContain(`\`${end}\``);
    const pipeline = new pg.Client({ connectionString: urlOf(roles.pipeline) });
    pipeline.on("error", () => undefined);
    await pipeline.connect();
    const cut = once(pipeline, "error");
    await pipeline.query("begin");
    await pipeline.query("select 'forgotten'");

    const { rows } = await pools.sealpost.query(sqlOf("owner", "pg_stat_activity"));
    const found = rows.find(({ usename }) => usename === roles.pipeline);
    expect(found).toMatchObject({ state: "idle in transaction", query: "select 'forgotten'" });
    await pools.sealpost.query(end.replace("PID", found.pid));
    expect(await cut).toMatchObject([{ code: "57P01" }]);
  });

  test("dump every schema that migrating makes", async () => {
    const { rows } = await pools.sealpost.query(
      "select nspname from pg_namespace where nspowner = current_user::regrole order by 1",
    );
    const [command = ""] = /`pg_dump [^`]*`/.exec(document) ?? [];
    const dumped = [...command.matchAll(/--schema=(\w+)/g)].map(([, name]) => name);
    expect(dumped.sort()).toEqual(rows.map(({ nspname }) => nspname));
  });

  test("let a refusal be made again that a restore has lost, before the receiver gets another POST", async () => {
    const receiver = await startReceiver({
      handler: () => ({ status: 410, headers: { "webhook-refuse": "1" } }),
    });
    const database = { url: urlOf(roles.sealpost), pool: pools.sealpost, drop: async () => undefined };
    const dispatcher = startTestDispatcher(database, [receiver]);
    try {
      const { href } = receiver.url("/in");
      const { accountId: account_id } = await createTestAccount(database, href);
      /** How many POSTs it has got in all. */
      const publishOne = async (name: string) => {
        const before = dispatcher.attempts.length;
        const id = await publish(pools.pipeline, account_id, `{"id":"${name}","status":"succeeded"}`);
        await dispatcher.waitForAttempts(before + 1);
        expect(await rowOf(pools.sealpost, "deliveries", { id })).toMatchObject({
          reason: "refused_by_receiver",
        });
        return receiver.requests.length;
      };
      expect(await publishOne("refused")).toBe(1);
      const restore = () => deleteRows(pools.sealpost, "refusals", { account_id });
      await restore();
      expect(await publishOne("lost-until-the-next")).toBe(2);
      await restore();
      const [, statement = ""] = /`(insert into sealpost\.refusals [^`]*)`/.exec(document) ?? [];
      expect(statement).not.toBe("");
      const again = statement.replaceAll(/\s+/g, " ").replace("ACCOUNT_ID", account_id).replace("URL", href);
      await pools.sealpost.query(again);
      expect(await publishOne("made-again")).toBe(2);
      const lifted_at = new Date();
      await changeRows(pools.sealpost, "refusals", { account_id }, { lifted_at });
      await pools.sealpost.query(again);
      expect(await publishOne("lifted-before")).toBe(2);
    } finally {
      await dispatcher.stop();
      await receiver.close();
    }
  });

  test("let a copy of production be quietened, a running bulk replay included", async () => {
    const accountId = await insertAccount(pools.sealpost, "https://hooks.example.com/in");
    await publish(
      pools.pipeline,
      accountId,
      '{"id":"a-2","status":"succeeded"}',
      "https://hooks.example.com/own",
    );
    const { client, rollback } = await begin(pools.sealpost);
    try {
      const running = {
        account_id: accountId,
        status: "running",
        filter: {},
        rate_per_second: 10,
        matched: 1,
      };
      await insertRow(client, "replays", { ...running, created_at: new Date(), paced_at: new Date() });
      await client.query(sqlOf("owner", "delete from sealpost.open_deliveries"));
      expect(await countRows(client, "open_deliveries")).toBe(0);
      expect(await countRows(client, "endpoints")).toBe(0);
      expect(await rowOf(client, "replays")).toMatchObject({ status: "cancelled" });
    } finally {
      await rollback();
    }
  });

  // What commits by itself is tried above.
  test.each(blocks.filter(({ role }) => !["administrator", "rollback"].includes(role)))(
    "let $role run: $begins",
    async ({ role, sql }) => {
      const { client, rollback } = await begin(pools[role === "support" ? "support" : "sealpost"]);
      try {
        await client.query(named(sql));
      } finally {
        await rollback();
      }
    },
  );
});
