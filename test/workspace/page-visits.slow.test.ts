import { createHash, randomBytes, scryptSync } from "node:crypto";
import type { Pool, QueryConfig } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { digestSecret } from "../../src/http/api-keys.ts";
import { countVisits, type OpenedLink, openLinks } from "../../src/workspace/store/page-links.ts";
import { createRendering } from "../../src/workspace/visiting/rendering.ts";
import {
  createPasswordTurns,
  createVisiting,
  hashPassword,
  visit,
} from "../../src/workspace/visiting/visits.ts";
import { changeRows, untilSomebodyWaits } from "../support/installation.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { api, database, type PageWorld, pageWorld, usePages, world } from "./page-world.ts";

const HOST = "console.localhost";
/** Whoever comes from elsewhere, as a proxy says. */
const from = (address: string) => ({ "x-forwarded-for": address });
const PASSWORD = "correct horse";
const newVisiting = (pool: Pool) => createVisiting(pool, createRendering(pool), createPasswordTurns());
const VISITOR = {
  address: "192.0.2.8",
  isAsking: false,
  gone: new AbortController().signal,
  hold: () => undefined,
};

usePages();

const visits = async (link: Json) => {
  const { visit_count, last_visited_at, state } = await world.linkOf(link.id);
  return { visit_count, last_visited_at, state };
};

const tokenOf = (link: Json) => String(link.url).split("/").at(-1)!;

/**
 * A link with the password, whose hash costs little, as it says itself: where many try at once, those of the cost that
 * the service sets would wait for too long on a slow machine.
 */
async function quickLink(there: PageWorld, wish: Json = {}): Promise<Json> {
  const { link } = await there.linked({ password: PASSWORD, ...wish });
  const salt = randomBytes(16);
  const key = scryptSync(PASSWORD, salt, 32, { N: 2 ** 4, r: 8, p: 1 });
  const quick = ["scrypt", 4, 8, 1, salt.toString("base64"), key.toString("base64")].join("$");
  await changeRows(database.pool, "workspace.page_links", { id: link.id }, { password_hash: quick });
  return link;
}

test("a page is written, published, linked and opened", async () => {
  const { link } = await world.linked({}, "# Results\n\n**3** pages.");
  expect(String(link.url)).toMatch(/^http:\/\/pages\.localhost\/p\/[\w-]{43}$/);
  const opened = await world.open(link);
  expect(opened.status).toBe(200);
  expect(opened.text).toContain("<title>A page</title>");
  expect(opened.text).toContain("<h1>A page</h1>\n<h2>Results</h2>\n<p><strong>3</strong> pages.</p>");
  const { headers } = opened;
  expect(headers).toMatchObject({
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
    "x-content-type-options": "nosniff",
  });
  expect(headers["content-security-policy"]).toMatch(
    /^sandbox; default-src 'none'; style-src 'sha256-[^;]+; base-uri/,
  );
  expect(headers["set-cookie"]).toBeUndefined();
  // To the HTML standard, a sandboxed page that has one is a network error.
  expect(headers).not.toHaveProperty("cross-origin-opener-policy");
  expect(await visits(link)).toEqual({
    visit_count: 1,
    last_visited_at: expect.any(String),
    state: "active",
  });
});

test("a link's token is kept nowhere, not even in its stored answer", async () => {
  const { link } = await world.linked();
  const token = tokenOf(link);
  const { rows } = await database.pool.query(
    "select to_jsonb(l)::text as row from workspace.page_links as l",
  );
  const stored = await database.pool.query(
    "select to_jsonb(i)::text as row from sealpost.idempotency_keys as i",
  );
  const everything = JSON.stringify([rows, stored.rows, api.log]);
  expect(everything).toContain(createHash("sha256").update(token).digest("hex"));
  expect(everything).not.toContain(token);
  expect(everything).not.toContain(Buffer.from(token).toString("hex"));
});

test("whoever only asks for the head of a page is not counted", async () => {
  const { link } = await world.linked();
  const asked = await world.open(link, { method: "HEAD" });
  expect([asked.status, asked.text]).toEqual([200, ""]);
  expect(await visits(link)).toMatchObject({ visit_count: 0, last_visited_at: null });
});

test.each([{ "sec-purpose": "prefetch" }, { "sec-purpose": "prefetch;prerender" }, { purpose: "prefetch" }])(
  "a browser that loads a page ahead (%j) is not counted, and asks again",
  async (headers) => {
    const { link } = await world.linked({ max_visits: 1 });
    const ahead = await world.open(link, { headers });
    expect([ahead.status, ahead.headers["cache-control"]]).toEqual([503, "no-store"]);
    expect(await visits(link)).toMatchObject({ visit_count: 0 });
    expect((await world.open(link)).status).toBe(200);
  },
);

test("a link that is over says so, and not why; an unknown one is not found", async () => {
  const changes: Json[] = [{ status: "REVOKED" }, { expires_at: "2020-01-01T00:00:00Z" }, { max_visits: 1 }];
  const texts = new Set<string>();
  for (const change of changes) {
    const { link } = await world.linked();
    await world.open(link);
    await api.ask("PATCH", `/v1/page-links/${link.id}`, { body: change });
    for (const password of [{}, { password: PASSWORD }]) {
      await api.ask("PATCH", `/v1/page-links/${link.id}`, { body: password });
      for (const opened of [await world.open(link), await world.send(link, PASSWORD)]) {
        expect(opened.status, JSON.stringify(change)).toBe(410);
        texts.add(opened.text);
      }
    }
    expect((await visits(link)).visit_count).toBe(1);
  }
  expect(texts.size).toBe(1);
  for (const token of ["a".repeat(43), "a", "a".repeat(3_000), "%00", "..%2F"]) {
    const { status } = await world.open({ url: `http://pages.localhost/p/${token}` });
    expect(status, token).toBe(404);
  }
});

test("pages have a host of their own, which shows nothing else", async () => {
  const { link } = await world.linked();
  expect((await world.open(link, { headers: { host: HOST } })).status).toBe(404);
  expect((await world.open(link, { headers: { host: `${HOST}:80` } })).status).toBe(404);
  expect((await world.open(link, { headers: { host: "PAGES.localhost:8443" } })).status).toBe(200);
  const elsewhere = (path: string, host: string) =>
    world.open({ url: `http://any.localhost${path}` }, { headers: { host } });
  for (const path of ["/", "/reference/", "/v1/openapi.json", "/v1/spaces", "/console/staff", "/errors"]) {
    expect((await elsewhere(path, "pages.localhost")).status, path).toBe(404);
    expect((await elsewhere(path, HOST)).status, path).not.toBe(404);
  }
  for (const path of ["/healthz", "/readyz"])
    expect((await elsewhere(path, "pages.localhost")).status).toBe(200);
  const put = await fetch(new URL(`/p/${"a".repeat(43)}`, api.url), { method: "PUT" });
  expect([put.status, put.headers.get("allow")]).toEqual([405, "GET, HEAD, POST"]);
});

test("of 50 visitors at once exactly as many get in as may", async () => {
  const { link } = await world.linked({ max_visits: 7 });
  const counting = () => api.statements().filter((text) => text.includes("set visit_count")).length;
  const before = counting();
  await using holder = await holding(link);
  const opening = Promise.all(Array.from({ length: 50 }, () => world.open(link)));
  // The first have seen it open; those that come meanwhile are counted together.
  await expect.poll(() => counting() - before).toBeGreaterThan(0);
  await holder.release();
  const statuses = (await opening).map(({ status }) => status);
  expect(statuses.filter((status) => status === 200)).toHaveLength(7);
  expect(statuses.filter((status) => status === 410)).toHaveLength(43);
  expect(await visits(link)).toMatchObject({ visit_count: 7, state: "exhausted" });
});

/** Nobody is counted until it is released. */
async function holding({ id }: Json) {
  const client = await database.pool.connect();
  await client.query("begin");
  await client.query("select from workspace.page_links where id = $1 for update", [id]);
  const release = async () => void (await client.query("commit"));
  return {
    release,
    [Symbol.asyncDispose]: async () => {
      await release();
      client.release();
    },
  };
}

test("a password is asked for, and a visit with it counts once", async () => {
  const { link } = await world.linked({ password: PASSWORD }, "Confidential.");
  const asked = await world.open(link);
  expect(asked.status).toBe(200);
  expect(asked.text).toContain('type="password"');
  expect(asked.text).not.toMatch(/Confidential|A page/);
  expect(asked.headers["content-security-policy"]).toMatch(/^sandbox allow-forms; .*form-action 'self'/);
  const wrong = await world.send(link, "incorrect horse");
  expect(wrong.status).toBe(403);
  expect(wrong.text).toContain("That is not the password.");
  expect((await visits(link)).visit_count).toBe(0);
  const right = await world.send(link, PASSWORD);
  expect(right.status).toBe(200);
  expect(right.text).toContain("<p>Confidential.</p>");
  expect((await visits(link)).visit_count).toBe(1);
  // É in either of its spellings.
  await api.ask("PATCH", `/v1/page-links/${link.id}`, { body: { password: "cafe\u0301 horse" } });
  expect((await world.send(link, PASSWORD)).status).toBe(403);
  expect((await world.send(link, "caf\u00e9 horse")).status).toBe(200);
});

test("what is not the page's own form is refused", async () => {
  const { link } = await world.linked({ password: PASSWORD });
  const json = { "content-type": "application/json" };
  expect((await world.send(link, PASSWORD, json)).status).toBe(415);
  const large = await world.send(link, "x".repeat(5_000));
  expect([large.status, large.headers["content-type"]]).toEqual([413, "text/html; charset=utf-8"]);
  expect((await visits(link)).visit_count).toBe(0);
});

test("whoever knows a password gets in, however many at once; the last visits are exact", async () => {
  const link = await quickLink(world, { max_visits: 12 });
  const opened = await Promise.all(Array.from({ length: 16 }, () => world.send(link, PASSWORD)));
  expect(opened.filter(({ status }) => status === 200)).toHaveLength(12);
  expect(opened.filter(({ status }) => status === 410)).toHaveLength(4);
});

describe("wrong passwords", () => {
  let behind: TestApi;
  let there: PageWorld;
  beforeAll(async () => {
    behind = await startTestApi(database, { TRUST_PROXY: "1" });
    there = pageWorld(behind);
  });
  afterAll(() => behind.close());

  test("are limited for an address, after which even the right one waits", async () => {
    const link = await quickLink(there);
    const tried = await Promise.all(
      Array.from({ length: 30 }, (_, n) => there.send(link, `wrong ${n}`, from("192.0.2.1"))),
    );
    const statuses = tried.map(({ status }) => status);
    expect(statuses.filter((status) => status === 403)).toHaveLength(10);
    expect(statuses.filter((status) => status === 429)).toHaveLength(20);
    const { rows } = await database.pool.query("select points from sealpost.rate_limits where key = $1", [
      `page-link:${link.id}`,
    ]);
    // What it was refused counts for nobody else.
    expect(rows).toEqual([{ points: 10 }]);
    const limited = await there.send(link, PASSWORD, from("192.0.2.1"));
    expect(limited.status).toBe(429);
    expect(limited.text).toContain("There were too many wrong passwords. Try again in 15 minutes.");
    expect(Number(limited.headers["retry-after"])).toBeGreaterThan(600);
    expect((await there.send(link, PASSWORD, from("192.0.2.2"))).status).toBe(200);
    const other = await quickLink(there);
    expect((await there.send(other, PASSWORD, from("192.0.2.1"))).status).toBe(200);
  });

  test("are limited for a link, from wherever they come", async () => {
    const link = await quickLink(there);
    expect((await there.send(link, "wrong", from("192.0.2.3"))).status).toBe(403);
    const { rowCount } = await database.pool.query(
      "update sealpost.rate_limits set points = 199 where key = $1",
      [`page-link:${link.id}`],
    );
    expect(rowCount).toBe(1);
    // One more, and right ones do not count.
    expect((await there.send(link, PASSWORD, from("192.0.2.4"))).status).toBe(200);
    expect((await there.send(link, "wrong", from("192.0.2.5"))).status).toBe(403);
    expect((await there.send(link, PASSWORD, from("192.0.2.6"))).status).toBe(429);
  });

  test("cost time, and so does the right one", async () => {
    const { link } = await there.linked({ password: PASSWORD });
    const timed = async (work: () => Promise<unknown>) => {
      const startMs = performance.now();
      await work();
      return performance.now() - startMs;
    };
    const send = (password: string) => there.send(link, password, from("192.0.2.7"));
    await send(PASSWORD);
    for (const password of ["wrong", PASSWORD]) {
      // Beside a hash of the same cost, and several times: a slow moment of the machine's is both's, or one time's.
      const ratios: number[] = [];
      for (let n = 0; n < 3; n++) {
        const both = [timed(() => send(password)), timed(() => hashPassword(password))] as const;
        const [sentMs, hashMs] = await Promise.all(both);
        ratios.push(sentMs / hashMs);
      }
      expect(Math.max(...ratios), password).toBeGreaterThan(0.5);
    }
  });
});

test("a visit needs the password that the link has at its end", async () => {
  const visiting = newVisiting(database.pool);
  const { tryPassword } = visiting;
  const opened = async (change: Json) => {
    const { link } = await world.linked({ password: PASSWORD });
    let left = 1;
    const tryAndChange: typeof tryPassword = async (...asked) => {
      const tried = await tryPassword(...asked);
      if (left-- > 0) await api.ask("PATCH", `/v1/page-links/${link.id}`, { body: change });
      return tried;
    };
    const token = tokenOf(link);
    const visitor = { token, password: PASSWORD, ...VISITOR };
    const { kind } = await visit(
      { ...visiting, tryPassword: tryAndChange },
      visitor,
      (_accountId, _turn, work) => work(),
    );
    return [kind, (await visits(link)).visit_count];
  };
  expect(await opened({ password: null })).toEqual(["open", 1]);
  expect(await opened({ password: PASSWORD })).toEqual(["open", 1]);
  expect(await opened({ password: "another horse" })).toEqual(["wrong", 0]);
  expect(await opened({ status: "REVOKED" })).toEqual(["over", 0]);
});

test("a link finds its version among thousands by its key, pinned or not", async () => {
  const { page, version, link } = await world.linked();
  await database.pool.query(
    `insert into workspace.page_versions
       (account_id, page_id, number, title, markdown, html, renderer, revision, published_by)
     select account_id, page_id, n, title, markdown, html, renderer, n, published_by
     from workspace.page_versions, generate_series(2, 3000) as n where id = $1`,
    [version.id],
  );
  const client = await database.pool.connect();
  const digest = digestSecret(tokenOf(link)).toString("hex");
  const looksAt = async () => {
    await client.query("begin");
    const { versionId } = (await openLinks(client, [digest])).get(digest)!;
    const { rows } = await client.query(
      "select seq_tup_read + idx_tup_fetch as read from pg_stat_xact_user_tables where relid = $1::regclass",
      ["workspace.page_versions"],
    );
    await client.query("rollback");
    // Its connection may have counted a few before.
    expect(Number(rows[0].read)).toBeLessThan(100);
    return versionId;
  };
  try {
    expect(await looksAt()).not.toBe(version.id);
    const body = { page_version_id: version.id };
    await api.ask("POST", `/v1/page-links/${link.id}/retarget`, { body });
    expect(await looksAt()).toBe(version.id);
    expect(await world.linkOf(link.id)).toMatchObject({ page_id: page, page_version_number: 1 });
  } finally {
    client.release();
  }
});

test("a visit that was begun before the password changed is not counted", async () => {
  const { link } = await world.linked({ password: PASSWORD });
  const opened = async () => (await newVisiting(database.pool).findLink(tokenOf(link)))!;
  const begun = await opened();
  await api.ask("PATCH", `/v1/page-links/${link.id}`, { body: { password: "another horse" } });
  const count = ({ accountId, id, authVersion }: OpenedLink) =>
    countVisits(database.pool, accountId, id, authVersion, 1);
  expect(await count(begun)).toBeNull();
  expect(await count(await opened())).toEqual({ counted: 1 });
});

test("visits that are counted together are as many as are left, and no more", async () => {
  const { link } = await world.linked({ max_visits: 7 });
  const opened = (await newVisiting(database.pool).findLink(tokenOf(link)))!;
  const counts = [newVisiting(database.pool).countVisit, newVisiting(database.pool).countVisit];
  const counted = await Promise.all(Array.from({ length: 20 }, (_, n) => counts[n % 2]!(opened)));
  expect(counted.filter(Boolean)).toHaveLength(7);
  expect((await visits(link)).visit_count).toBe(7);
});

test("however many open one link, they leave others the database", async () => {
  const { link } = await world.linked();
  const stranger = await api.newAccount();
  await using holder = await holding(link);
  const crowd = Promise.all(Array.from({ length: 200 }, () => world.open(link)));
  await untilSomebodyWaits(database.pool);
  // More often than there are connections: each visit would have one.
  for (let n = 0; n < 30; n++) {
    expect((await api.ask("GET", "/v1/spaces", { key: stranger.key })).status).toBe(200);
  }
  await holder.release();
  const statuses = (await crowd).map(({ status }) => status);
  expect(statuses).toEqual(statuses.map(() => 200));
  expect((await visits(link)).visit_count).toBe(200);
});

test("links that are asked for together are found by one statement, and those that are not there are not", async () => {
  const links = [(await world.linked()).link, (await world.linked()).link];
  let statements = 0;
  const query = (statement: QueryConfig) => {
    statements++;
    return database.pool.query(statement);
  };
  const find = newVisiting({ query } as unknown as Pool).findLink;
  const tokens = [...links.map(tokenOf), "a".repeat(43), tokenOf(links[0]!)];
  const found = await Promise.all(tokens.map(find));
  expect(found.map((link) => link?.id)).toEqual([links[0]!.id, links[1]!.id, undefined, links[0]!.id]);
  expect(statements).toBe(1);
});
