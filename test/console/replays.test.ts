import { beforeEach, describe, expect, test } from "vitest";
import { openConsole } from "../../src/app/console-sessions.ts";
import { DAY_MS } from "../../src/base/model/time.ts";
import { enter, type Got, type Hand, postForm, request, tokenOf } from "../support/console.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows, countRows, deleteRows, makePartitionsFrom } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { TestAccount } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";

const MAY_REPLAY = ["webhooks:read", "webhooks:replay"];

const { database, api } = await openApi();
let account: TestAccount;
let hand: Hand;

/** Each test has an account of its own: three abandoned deliveries, two that fail, two that have arrived. */
beforeEach(async () => {
  await deleteRows(database.pool, "replays");
  account = await api.newAccount();
  await layDeliveries(database, account.accountId, { abandoned: 3, failed: 2, succeeded: 2, pending: 1 });
  hand = await enter(api, { key: account.ownKey, permissions: MAY_REPLAY });
});

/** Follows a screen to where it sends its viewer. */
async function open(path: string, by: Hand = hand): Promise<Got & { readonly path: string }> {
  const got = await by.get(by.base + path);
  const location = got.headers.get("location");
  return got.status === 303 && location !== null
    ? open(location.slice(by.base.length), by)
    : { ...got, path };
}

/** What a browser would send of the page's form: each field with its value, ticked boxes alone. */
function formOn({ text }: Got): [string, string][] {
  const form = /<form class="bulk"[\s\S]*?<\/form>/.exec(text)?.[0] ?? "";
  const fields = [...form.matchAll(/<input ([^>]*)>/g)].flatMap(([, attributes = ""]): [string, string][] => {
    const value = (name: string) => new RegExp(`\\b${name}="([^"]*)"`).exec(attributes)?.[1];
    const isLeftOut = value("type") === "checkbox" && !/ checked/.test(attributes);
    return isLeftOut ? [] : [[value("name")!, (value("value") ?? "").replaceAll("&#38;", "&")]];
  });
  const error = /<option value="([^"]*)" selected/.exec(form)?.[1] ?? "";
  return [...fields, ["error_code", error]];
}

async function post(
  path: string,
  form: readonly [string, string][],
  by: Hand = hand,
  url: string = api.url,
): Promise<Got> {
  const headers = { "content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin" };
  const response = await fetch(new URL(by.base + path, url), {
    method: "POST",
    headers: { ...headers, cookie: by.cookie },
    redirect: "manual",
    body: new URLSearchParams(form as [string, string][]),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

const locationOf = ({ headers }: Got) => (headers.get("location") ?? "").slice(hand.base.length);
const replays = () => countRows(database.pool, "replays", { account_id: account.accountId });

describe("a bulk replay", () => {
  test("shows how many match, as the dry run counts them, and where they go", async () => {
    const dryRun = await api.ask("POST", "/v1/webhooks/replays", {
      key: account.ownKey,
      body: { filter: { status: "abandoned", reason: "attempts_exhausted" }, dry_run: true },
    });
    const page = await open("/replays/new?status=abandoned&reason=attempts_exhausted");
    expect(dryRun.body.matched).toBe(3);
    expect(page.text).toContain("3 deliveries match");
    expect(page.text).toContain("They go to <code>https://hooks.example.com/in</code>.");
    expect(await replays()).toBe(0);
  });

  test("says which have a URL of their own, and which have expired", async () => {
    const { pool } = database;
    const longAgo = new Date(Date.now() - 8 * DAY_MS);
    await makePartitionsFrom(pool, longAgo.toISOString().slice(0, 10), 1);
    const ownUrl = "https://own.example.net/";
    await publishAt(pool, account.accountId, new Date(), ["own"], ownUrl);
    await publishAt(pool, account.accountId, longAgo, ["old"]);
    await pool.query(
      `update sealpost.deliveries set status = 'abandoned', reason = 'attempts_exhausted'
       where account_id = $1 and analysis_id in ('own', 'old')`,
      [account.accountId],
    );
    const { text } = await open("/replays/new");
    expect(text).toContain("6 deliveries match");
    expect(text).toContain("1 goes to the URL that it was published with.");
    expect(text).toContain("1 other has expired");
  });

  test("is made once by a form that is sent twice, and is queued", async () => {
    const form = formOn(await open("/replays/new?status=abandoned&note=INC-42"));
    const [one, other] = await Promise.all([post("/replays", form), post("/replays", form)]);
    const again = await post("/replays", form);
    // One that comes while the first is being written down is sent to the list.
    const locations = [again, one, other].map(locationOf);
    expect(new Set(locations.filter((location) => location !== "/replays")).size).toBe(1);
    expect(await replays()).toBe(1);
    const { text } = await open(locations[0]!);
    expect(text).toContain("Queued: they start at 10 a second.");
    expect(text).toContain("0 of 3 started");
    expect(text).toContain("INC-42");
    expect(text).not.toMatch(/success/i);
    expect((await open("/replays")).text).toContain("INC-42");
  });

  test("takes nothing that was not counted: changed fields are counted first", async () => {
    const form = formOn(await open("/replays/new?status=abandoned"));
    const widened = await post("/replays", [...form, ["status", "failed"]]);
    expect(locationOf(widened)).toMatch(/^\/replays\/new\?/);
    expect((await open(locationOf(widened))).text).toContain("5 deliveries match");
    const nothing = form.filter(([name]) => name !== "status");
    expect(locationOf(await post("/replays", nothing))).toMatch(/^\/replays\/new\?/);
    const uncounted = form.filter(([name]) => name !== "_matched");
    expect(locationOf(await post("/replays", uncounted))).toMatch(/^\/replays\/new\?/);
    expect(await replays()).toBe(0);
  });

  test("whose set has changed asks again, with the new count", async () => {
    const form = formOn(await open("/replays/new?status=abandoned"));
    await database.pool.query(
      `update sealpost.deliveries set status = 'abandoned', reason = 'attempts_exhausted'
       where account_id = $1 and status = 'failed'`,
      [account.accountId],
    );
    const page = await open(locationOf(await post("/replays", form)));
    expect(page.text).toMatch(/Nothing was replayed: when you looked, 3 matched, and now\s+5 do/);
    expect(await replays()).toBe(0);
    const made = await post("/replays", formOn(page));
    expect((await open(locationOf(made))).text).toContain("Replay of 5 deliveries");
  });

  test("is tried with the newest one alone, once", async () => {
    const form = formOn(await open("/replays/new?status=abandoned"));
    const tries = [await post("/replays/try", form), await post("/replays/try", form)];
    expect(tries.map(({ status }) => status)).toEqual([303, 303]);
    const { text } = await open(locationOf(tries[0]!));
    expect(text).toMatch(/Queued: run 2 of\s+<a [^>]*>inv-1<\/a>/);
    expect(text).toContain("2 deliveries match");
    const again = { account_id: account.accountId, run: 2 };
    expect([await countRows(database.pool, "deliveries", again), await replays()]).toEqual([1, 0]);
  });

  test("says what it does not understand, and keeps the form", async () => {
    const { text } = await open("/replays/new?rate_per_second=5000&target_host=a%20b&nonsense=1");
    expect(text).toContain("This cannot be counted");
    for (const name of ["rate per second", "target host", "nonsense"])
      expect(text).toContain(`<strong>${name}</strong>`);
    expect(text).toContain('value="5000"');
    expect(text).not.toContain("Replay 5");
    expect((await open("/replays/new?nonsense=1")).text).toContain("This cannot be counted");
  });

  test("stops: it is stopped for good, by whoever presses twice, too", async () => {
    const made = await post("/replays", formOn(await open("/replays/new")));
    const path = locationOf(made).split("?")[0]!;
    const key: [string, string][] = [
      ["_key", /name="_key" value="([^"]+)"/.exec((await open(path)).text)![1]!],
    ];
    const stops = [await post(`${path}/cancel`, key), await post(`${path}/cancel`, key)];
    expect(stops.map(({ status }) => status)).toEqual([303, 303]);
    const { text } = await open(locationOf(stops[0]!));
    expect(text).toContain("Stopped: no more are started; those already started continue.");
    expect(text).not.toContain("/cancel");
    const stopped = { account_id: account.accountId, status: "cancelled" };
    expect(await countRows(database.pool, "replays", stopped)).toBe(1);
  });

  test("of another account is unknown, to look at and to stop", async () => {
    const made = await post("/replays", formOn(await open("/replays/new")));
    const path = locationOf(made).split("?")[0]!;
    const stranger = await enter(api, { key: (await api.newAccount()).key, permissions: MAY_REPLAY });
    expect(await stranger.get(stranger.base + path)).toMatchObject({ status: 404 });
    expect(await post(`${path}/cancel`, [["_key", "k"]], stranger)).toMatchObject({ status: 404 });
    expect((await stranger.get(`${stranger.base}/replays`)).text).toContain(
      "Nothing has been replayed in bulk",
    );
    const running = { account_id: account.accountId, status: "running" };
    expect(await countRows(database.pool, "replays", running)).toBe(1);
  });

  test("is nowhere for a session that only reads, and its forged forms are refused", async () => {
    const form = formOn(await open("/replays/new"));
    const reader = await enter(api, { key: account.ownKey, permissions: ["webhooks:read"] });
    const log = await reader.get(`${reader.base}/deliveries`);
    expect(log.text).not.toMatch(/replays|Replay all/);
    for (const path of ["/replays", "/replays/new?status=failed&status=abandoned"]) {
      expect([path, (await open(path, reader)).status]).toEqual([path, 403]);
    }
    for (const path of ["/replays", "/replays/try", `/replays/${account.accountId}/cancel`]) {
      expect([path, (await post(path, form, reader)).status]).toEqual([path, 403]);
    }
    expect(await post("/replays", [], reader)).toMatchObject({ status: 403 });
    expect(await replays()).toBe(0);
  });

  test("outlives the process that took it, is stopped by another, and the log names the person", async () => {
    const form = formOn(await open("/replays/new"));
    const env = { DATABASE_URL: database.url };
    const [one, other] = await Promise.all([startProcess("serve", env), startProcess("serve", env)]);
    const by = (process: SealpostProcess): Hand => {
      const url = process.url;
      const get: Hand["get"] = (path) => request(url, "GET", path, { cookie: hand.cookie });
      const send: Hand["post"] = (path, fields = {}) => postForm(url, path, fields, { cookie: hand.cookie });
      return { ...hand, get, post: send };
    };
    const made = await post("/replays", form, by(one), one.url);
    await one.kill();
    expect(made.status).toBe(303);
    const page = await open(locationOf(made), by(other));
    expect(page.text).toContain("0 of 5 started");
    const path = page.path.replace(/\?.*/, "");
    const stopped = await by(other).post(`${hand.base}${path}/cancel`, { _key: "stop" });
    expect((await open(locationOf(stopped), by(other))).text).toContain("Stopped: no more are started");
    await other.stop();
    const { body } = await api.ask("GET", "/v1/audit?limit=2", { key: account.ownKey });
    expect(body.items).toMatchObject([
      { operation: "webhooks.replays.cancel", actor: { kind: "key", viewer: "Sam Viewer" } },
      { operation: "webhooks.replays.create", actor: { kind: "key", viewer: "Sam Viewer" } },
    ]);
    const reader = await enter(api, { key: account.ownKey, permissions: ["audit:read"], path: "/audit" });
    const changes = await reader.get(`${reader.base}/audit`);
    expect(changes.text).toMatch(
      /<strong>Sam Viewer<\/strong>.*stopped bulk replay.*<strong>Sam Viewer<\/strong>.*replayed 5 /s,
    );
    expect(await reader.get(`${reader.base}/deliveries`)).toMatchObject({ status: 403 });
    expect(await hand.get(`${hand.base}/audit`)).toMatchObject({ status: 403 });
  });

  test("of a console that the command line opened is nobody's key's", async () => {
    const { url } = await openConsole(database.pool, account.accountId, {
      publicUrl: api.url,
      linkSeconds: 60,
    });
    const entered = await postForm(api.url, "/console/enter", { t: tokenOf(new URL(url)) });
    const cookie = entered.headers.get("set-cookie")!.split(";")[0]!;
    const form = formOn(await open("/replays/new"));
    expect(await post("/replays", form, { ...hand, cookie })).toMatchObject({ status: 303 });
    const { body } = await api.ask("GET", "/v1/webhooks/replays", { key: account.ownKey });
    expect(body.items).toMatchObject([{ matched: 5, created_by: null }]);
  });

  test("leads to its deliveries", async () => {
    const made = await post("/replays", formOn(await open("/replays/new")));
    const id = /replays\/([^?]+)/.exec(locationOf(made))![1]!;
    expect((await open(`/replays/${id}`)).text).toContain(`/deliveries?replay_id=${id}`);
    const log = await open(`/deliveries?replay_id=${id}`);
    expect(log.text).toContain(
      `of replay <a href="/console/a/${account.accountId}/replays/${id}">a bulk replay</a>`,
    );
    expect(log.text).toContain(`<input type="hidden" name="replay_id" value="${id}">`);
  });
});

test("who was staff is known where their keys are not, and is not told by name", async () => {
  const [id = ""] = await publishAt(database.pool, account.accountId, new Date(), ["staff-replayed"]);
  await changeRows(
    database.pool,
    "deliveries",
    { id },
    { status: "abandoned", reason: "attempts_exhausted" },
  );
  const staff = await api.newKey(null);
  await api.ask("POST", `/v1/webhooks/deliveries/${id}/replay`, {
    key: staff,
    headers: { "x-account-id": account.accountId },
  });
  // As in a cell that the account has moved to: its log is there, staff's keys are not.
  await database.pool.query(
    "update sealpost.audit_log set key_id = $1, viewer = 'Sam Staff' where account_id = $2",
    ["01900000-0000-7000-8000-000000000000", account.accountId],
  );
  const { body } = await api.ask("GET", `/v1/webhooks/deliveries/${id}`, { key: account.ownKey });
  expect(body.replays).toMatchObject([{ run: 2, created_by: { staff: true, name: null, viewer: null } }]);
});
