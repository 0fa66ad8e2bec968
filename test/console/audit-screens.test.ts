import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { enter, type Hand } from "../support/console.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { changeRows } from "../support/installation.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { enterAsStaff } from "../support/staff.ts";

const FILE = "/console/staff/audit.csv";
/** More than sockets hold on the way: a row is about 4 KB. */
const ROWS = 6_000;

let database: TestDatabase;
let proxy: DatabaseProxy;
let api: TestApi;
let staff: Hand;

beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  api = await startTestApi({ ...database, url: proxy.url });
  staff = await enterAsStaff(api, { key: await api.newKey(null) });
});
afterAll(async () => {
  await api.close();
  await proxy.close();
  await database.drop();
});

/** Changes of an account, one a minute, the newest now. */
async function layChanges({ accountId }: TestAccount, count: number, noteChars = 4_000): Promise<void> {
  await database.pool.query(
    `insert into sealpost.audit_log (id, account_id, actor, operation_key, details)
     select sealpost.uuid_v7_floor(now() - n * interval '1 minute'), $1, 'command_line',
       case when n % 2 = 0 then 'webhooks.replays.create' else 'webhooks.endpoint.set' end,
       jsonb_build_object('note', n || repeat('.', $3)) from generate_series(1, $2::integer) n`,
    [accountId, count, noteChars],
  );
}

describe("the file of changes", () => {
  let account: TestAccount;
  beforeAll(async () => {
    account = await api.newAccount();
    await layChanges(account, ROWS);
  });

  /** A reader who has had a look at the first bytes, and waits. */
  async function begin(search: string): Promise<IncomingMessage> {
    const asked = get(new URL(FILE + search, api.url), { headers: { cookie: staff.cookie } });
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    await once(response, "readable");
    return response;
  }
  async function rest(response: IncomingMessage): Promise<string> {
    let text = "";
    for await (const bytes of response) text += bytes;
    return text;
  }
  const notesOf = (text: string) => [...text.matchAll(/,"(\d+)\.*",/g)].map(([, n]) => Number(n));
  const all = Array.from({ length: ROWS }, (_, n) => n + 1);

  test("is all of them, newest first, each once, however many", { tags: ["slow"] }, async () => {
    const text = await rest(await begin(`?account_id=${account.accountId}`));
    expect(notesOf(text)).toEqual(all);
    expect(text.endsWith('"\r\n')).toBe(true);
  });

  test("is what the filters ask for", async () => {
    const search = `?account_id=${account.accountId}&operation=webhooks.endpoint.set`;
    expect(notesOf(await rest(await begin(search)))).toEqual(all.filter((n) => n % 2 === 1));
    const wrong = await staff.get(`${FILE}?operation=nothing`);
    expect([wrong.status, wrong.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
  });

  test("is read no faster than it is taken", { tags: ["slow"] }, async () => {
    const fleeting = await api.newAccount();
    await layChanges(fleeting, ROWS);
    const search = `?account_id=${fleeting.accountId}`;
    const response = await begin(search);
    // Meanwhile it could all have been read, and would be in the file although it is gone.
    await rest(await begin(search));
    await database.pool.query(
      `delete from sealpost.audit_log where account_id = $1 and details ->> 'note' like $2`,
      [fleeting.accountId, `${ROWS}%`],
    );
    expect(notesOf(await rest(response))).toEqual(all.slice(0, -1));
    expect(response.complete).toBe(true);
  });

  test("is whole for each who asks for it in one moment", { tags: ["slow"] }, async () => {
    const ask = () => staff.get(`${FILE}?account_id=${account.accountId}`, { "x-refresh": "1" });
    await ask();
    const texts = (await Promise.all([ask(), ask(), ask()])).map(({ text }) => notesOf(text).length);
    expect(texts).toEqual([ROWS, ROWS, ROWS]);
  });

  test("that cannot be finished does not look whole", async () => {
    const response = await begin(`?account_id=${account.accountId}`);
    await proxy.cut();
    await expect(rest(response)).rejects.toThrow("aborted");
    expect(response.complete).toBe(false);
    await proxy.restore();
    await expect.poll(async () => (await staff.get(`${FILE}?actor=staff`)).status).toBe(200);
  });

  test("ends with the session of whoever takes it, and does not look whole", async () => {
    const response = await begin(`?account_id=${account.accountId}`);
    await changeRows(database.pool, "console_sessions", { revoked_at: null }, { revoked_at: new Date() });
    await expect(rest(response)).rejects.toThrow("aborted");
    expect(response.complete).toBe(false);
    staff = await enterAsStaff(api, { key: await api.newKey(null) });
  });

  test("is not made for whoever asks only about it", async () => {
    const headers = { cookie: staff.cookie };
    const { status, headers: told, body } = await fetch(new URL(FILE, api.url), { method: "HEAD", headers });
    expect([status, told.get("content-disposition"), body]).toEqual([
      200,
      'attachment; filename="audit.csv"',
      null,
    ]);
  });
});

describe("changes are narrowed", () => {
  let account: TestAccount;
  let hand: Hand;
  beforeAll(async () => {
    account = await api.newAccount();
    await layChanges(account, 6, 0);
    hand = await enter(api, { key: account.ownKey, permissions: ["audit:read"], time_zone: "Europe/Berlin" });
  });

  const namesOf = (text: string) =>
    [...text.matchAll(/<td><span title="([a-z_.]+)">/g)].map(([, name]) => name!);
  const open = async (search: string) => await hand.get(`${hand.base}/audit${search}`);

  test("by what was done, and by whom", async () => {
    expect(namesOf((await open("?operation=webhooks.endpoint.set")).text)).toEqual(
      Array(3).fill("webhooks.endpoint.set"),
    );
    expect(namesOf((await open("?actor=key&openings=shown")).text)).toEqual(["console.links.create"]);
    expect(namesOf((await open("?actor=command_line")).text)).not.toContain("console.links.create");
    // A key that the page shows can be chosen.
    const keyId = /<option value="([0-9a-f-]{36})">API key/.exec((await open("?openings=shown")).text)![1]!;
    const { text } = await open(`?actor=${keyId}&openings=shown`);
    expect(namesOf(text)).toEqual(["console.links.create"]);
    expect(text).toContain(`<option value="${keyId}" selected>`);
  });

  test("by when, in the viewer's zone, by an address that shows the same to everybody", async () => {
    const empty = await open("?operation=&actor=&from=2020-01-01T01%3A00&to=2020-01-01T02%3A00");
    expect([empty.status, empty.headers.get("location")]).toEqual([
      303,
      `${hand.base}/audit?created_after=2020-01-01T00%3A00%3A00.000Z&created_before=2020-01-01T01%3A00%3A00.000Z`,
    ]);
    const { pathname, search } = new URL(empty.headers.get("location")!, api.url);
    const none = await hand.get(pathname + search);
    expect(none.text).toContain("No change matches");
    expect(none.text).toContain('value="2020-01-01T01:00"');
    expect(none.text).toContain(`<a href="${hand.base}/audit">Clear filters</a>`);
  });

  test("by nothing else, and with what keeps from being narrowed said", async () => {
    for (const search of ["?operation=nothing", "?actor=nobody", "?created_after=now", "?account_id=1"]) {
      expect([search, (await open(search)).status]).toEqual([search, 400]);
    }
    const fresh = await api.newAccount();
    const first = await enter(api, { key: fresh.ownKey, permissions: ["audit:read"] });
    await database.pool.query("delete from sealpost.audit_log where account_id = $1", [fresh.accountId]);
    const { text } = await first.get(`${first.base}/audit`);
    expect(text).toContain("Nothing has been changed yet");
    expect(text).not.toContain("<select");
  });
});

describe("changes are told", () => {
  let account: TestAccount;
  const plain = (text: string) => text.replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");
  const open = async (permissions: readonly string[], search = "") => {
    const hand = await enter(api, { key: account.ownKey, permissions });
    return { base: hand.base, ...(await hand.get(`${hand.base}/audit${search}`)) };
  };
  const set = (url: string) =>
    api.ask("PUT", "/v1/webhooks/endpoint", { key: account.ownKey, body: { url } });

  beforeAll(async () => {
    account = await api.newAccount();
    await set("https://hooks.example.com/one");
    await set("https://hooks.example.com/two");
    const body = { filter: { status: "abandoned" }, note: "INC-7 <b>" };
    const hand = await enter(api, { key: account.ownKey, permissions: ["webhooks:write"] });
    await hand.post(`${hand.base}/endpoint/pause`, { _key: "p" });
    await api.ask("POST", "/v1/webhooks/replays", { body, key: account.ownKey });
    await database.pool.query(
      `insert into sealpost.audit_log (account_id, actor, operation_key, details)
       values ($1, 'command_line', 'things.make_new', '{}')`,
      [account.accountId],
    );
  });

  test("in sentences: who did what, from what to what, with the note, and a link for whoever may see it", async () => {
    const { text, base } = await open(["audit:read", "webhooks:read", "webhooks:replay"]);
    const told = plain(text);
    expect(told).toMatch(/The command line did: things make new/);
    expect(told).toMatch(/API key [0-9a-f]{8} replayed 0 abandoned deliveries at 10 a second/);
    expect(told).toMatch(/Sam Viewer \( ?API key [0-9a-f]{8} ?\) paused the endpoint/);
    expect(told).toContain(
      "changed the endpoint : https://hooks.example.com/one → https://hooks.example.com/two",
    );
    expect(text).toContain('<td data-label="Note">INC-7 &#60;b&#62;</td>');
    expect(text).toMatch(new RegExp(`<a href="${base}/replays/[0-9a-f-]{36}">0 abandoned deliveries</a>`));
    expect(text).toContain(`<a href="${base}/endpoint">the endpoint</a>`);
    expect(text).toContain('title="webhooks.endpoint.set"');
    const blind = await open(["audit:read"]);
    expect(blind.text).not.toMatch(new RegExp(`<a href="${base}/(?:replays|endpoint)`));
    expect(plain(blind.text)).toContain("paused the endpoint");
  });

  test("to staff with whose they are, and links into that account", async () => {
    const { text } = await staff.get(`/console/staff/audit?account_id=${account.accountId}`);
    expect(text).toContain(`<a href="/console/staff/a/${account.accountId}/endpoint">the endpoint</a>`);
    const front = await staff.get("/console/staff");
    expect(plain(front.text)).toContain("replayed 0 abandoned deliveries");
    expect(front.text).not.toContain("signed in to support");
  });

  test("with names for people in the filter", async () => {
    const { text } = await open(["audit:read"]);
    const names = [...text.matchAll(/<option value="([a-z_]+\.[a-z_.]+)">([^<]*)</g)];
    expect(names.length).toBeGreaterThan(40);
    expect(names.map(([, , name]) => name)).toEqual(
      names.map(([, , name]) => name!).sort((a, b) => a.localeCompare(b)),
    );
    expect(names.find(([, key]) => key === "webhooks.endpoint.set")?.[2]).toBe("Set the endpoint");
    expect(names.filter(([, , name]) => name!.includes("."))).toEqual([]);
    for (const key of ["webhooks.endpoint.check", "accounts.erase", "users.create"]) {
      expect((await open(["audit:read"], `?operation=${key}`)).status).toBe(200);
    }
  });
});

describe("openings of the console and sign-ins", () => {
  test("are hidden unless asked for, and no page is shorter for it", async () => {
    const account = await api.newAccount();
    await database.pool.query(
      `insert into sealpost.audit_log (id, account_id, actor, operation_key, details)
       select sealpost.uuid_v7_floor(now() - n * interval '1 minute'), $1, 'command_line',
         case when n % 3 = 0 then 'webhooks.endpoint.pause' else 'console.links.create' end, '{}'
       from generate_series(1, 180) n`,
      [account.accountId],
    );
    const hand = await enter(api, { key: account.ownKey, permissions: ["audit:read"] });
    const count = ({ text }: { text: string }, what: string) =>
      text.split(`<span title="${what}">`).length - 1;
    const page = await hand.get(`${hand.base}/audit`);
    expect([count(page, "webhooks.endpoint.pause"), count(page, "console.links.create")]).toEqual([50, 0]);
    const next = /rel="next" href="([^"]*)"/.exec(page.text)![1]!.replaceAll("&#38;", "&");
    expect(count(await hand.get(next), "webhooks.endpoint.pause")).toBe(10);
    expect(page.text).toContain(`<a href="${hand.base}/audit?openings=shown">Show openings and sign-ins</a>`);
    const shown = await hand.get(`${hand.base}/audit?actor=command_line&openings=shown`);
    expect(count(shown, "console.links.create")).toBeGreaterThan(30);
    // The choice stays when something else is filtered by, and goes by its own link.
    expect(shown.text).toContain('<input type="hidden" name="openings" value="shown">');
    expect(shown.text).toMatch(/rel="next" href="[^"]*openings=shown/);
    expect(shown.text).toContain(
      `<a href="${hand.base}/audit?actor=command_line">Hide openings and sign-ins</a>`,
    );
    const asked = await hand.get(`${hand.base}/audit?operation=console.links.create`);
    expect(count(asked, "console.links.create")).toBe(50);
    expect(asked.text).not.toContain("openings and sign-ins");
  });

  test("are in staff's file only if the page shows them", async () => {
    const file = async (search: string) => (await staff.get(`${FILE}${search}`)).text;
    expect(await file("?actor=staff_key&openings=shown")).toContain("console.staff.sign_in");
    expect(await file("?actor=staff_key")).not.toContain("console.staff.sign_in");
    const page = await staff.get("/console/staff/audit?actor=staff_key&openings=shown");
    expect(page.text).toContain(`${FILE}?actor=staff_key&#38;openings=shown`);
    expect(page.text).toContain("signed in to support");
  });
});
