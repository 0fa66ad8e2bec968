import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { metricsTable } from "../../src/metrics/table.ts";
import { migrate } from "../../src/store/migrate.ts";
import { createTestAccount, startTestDispatcher } from "../support/dispatching.ts";
import { publish } from "../support/publishing.ts";
import { startReceiver } from "../support/receiver.ts";
import { startTestApi } from "../support/sealpost-api.ts";

const document = readFileSync(new URL("../../docs/operating.md", import.meta.url), "utf8");

/** The document's SQL, by whom it is for. */
const blocks = [...document.matchAll(/<!-- sql: (\w+) -->\n```sql\n([\s\S]*?)```/g)].map(
  ([, role = "", sql = ""]) => ({ role, sql, begins: sql.trim().split("\n", 1)[0] ?? "" }),
);
const sqlOf = (role: string, part: string) =>
  blocks.find((block) => block.role === role && block.sql.includes(part))?.sql ?? "";

test("the document shows the metrics as they are declared", () => {
  expect(document).toContain(`<!-- metrics -->\n\n${metricsTable()}\n\n`);
});

test("its links lead somewhere", () => {
  const anchors = new Set(
    [...document.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
      title
        .toLowerCase()
        .replace(/[^a-z0-9 -]/g, "")
        .replaceAll(" ", "-"),
    ),
  );
  const links = [...document.matchAll(/\]\(#([^)]+)\)/g)].map(([, anchor = ""]) => anchor);
  expect(links.filter((anchor) => !anchors.has(anchor))).toEqual([]);
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
    const { rows } = await pools.support.query("select status from sealpost.deliveries");
    expect(rows).toEqual([{ status: "succeeded" }]);
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

  test.each(blocks.filter(({ role }) => role !== "administrator"))(
    "let $role run: $begins",
    async ({ role, sql }) => {
      const client = await pools[role === "support" ? "support" : "sealpost"].connect();
      try {
        await client.query("begin");
        await client.query(named(sql));
      } finally {
        await client.query("rollback");
        client.release();
      }
    },
  );
});
