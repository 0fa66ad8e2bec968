import { beforeEach, describe, expect, test } from "vitest";
import { createGather } from "../../src/console/refresh.ts";
import { enter, type Got, type Hand, request } from "../support/console.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { changeRows, publish, rowOf } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import { startTestApi, type TestAccount } from "../support/sealpost-api.ts";
import { enterAsStaff } from "../support/staff.ts";

const READ = ["webhooks:read"];
const REPLAY = ["webhooks:read", "webhooks:replay"];

const { database, api } = await openApi();
let account: TestAccount;

beforeEach(async () => {
  account = await api.newAccount();
  await layDeliveries(database, account.accountId, { abandoned: 1, failed: 0, succeeded: 1, pending: 0 });
});

const viewer = (permissions: readonly string[] = READ, wish: object = {}) =>
  enter(api, { key: account.ownKey, permissions, ...wish });
const viewers = (count: number, permissions = READ) =>
  Promise.all(Array.from({ length: count }, () => viewer(permissions)));

const refresh = (hand: Hand, path = `${hand.base}/deliveries`): Promise<Got> =>
  hand.get(path, { "x-refresh": "1" });

/** All in one moment: one that comes alone does not wait, and the others wait for the next. */
async function refreshAll(hands: readonly Hand[], path?: string): Promise<readonly Got[]> {
  await refresh(hands[0]!, path);
  return await Promise.all(hands.map((hand) => refresh(hand, path)));
}

const publishOne = (id: string) =>
  publish(database.pool, account.accountId, JSON.stringify({ id, status: "succeeded" }));
const firstDelivery = () =>
  rowOf(database.pool, "deliveries", { account_id: account.accountId, analysis_id: "inv-1" });

describe("refreshes of one moment", () => {
  test("are read for once, and their sessions are found and counted by a statement each", async () => {
    const hands = await viewers(10);
    const sent = () => {
      const texts = api.statements();
      const count = (part: string) => texts.filter((text) => text.includes(part)).length;
      return ["as deliveries", "console_sessions s", "sealpost.rate_limits"].map(count);
    };
    // On a busy machine some come too late for the moment.
    await expect
      .poll(async () => {
        await refresh(hands[0]!);
        const before = sent();
        const asked: Promise<Got>[] = [];
        for (const hand of hands) {
          asked.push(refresh(hand));
          // Not all in one turn of the event loop.
          await request(api.url, "GET", "/healthz", {});
        }
        const got = await Promise.all(asked);
        expect(new Set(got.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
        return sent().map((count, at) => count - before[at]!);
      })
      .toEqual([1, 1, 1]);
  });

  test("show nobody another account, more than they may, or another clock", async () => {
    const staffKey = await api.newKey(null);
    const other = await api.newAccount();
    const [reads, replays, elsewhere, tokyo, staff] = await Promise.all([
      viewer(),
      viewer(REPLAY),
      enter(api, { key: other.ownKey, permissions: READ }),
      viewer(READ, { time_zone: "Asia/Tokyo" }),
      enterAsStaff(api, { key: staffKey }),
    ]);
    // Its viewer has chosen another zone than its link's.
    const choosing = await viewer(READ, { time_zone: "Asia/Tokyo" });
    const cookie = `${choosing.cookie}; __Host-sp-zone=UTC`;
    const get: Hand["get"] = (path, headers) => choosing.get(path, { ...headers, cookie });
    const utc = { ...choosing, get };
    const asStaff = { ...staff, base: `${staff.base}/a/${account.accountId}` };
    const texts = (await refreshAll([reads, replays, elsewhere, tokyo, utc, asStaff])).map(
      ({ text }) => text,
    );
    const facts = texts.map((text) => ({
      rows: [...text.matchAll(/inv-\d/g)].length,
      mayReplay: text.includes("/replays/new"),
      clock: /Times in <\/span>([\w/]+)/.exec(text)?.[1],
      offersTokyo: text.includes('value="Asia/Tokyo"'),
      isStaff: text.includes('href="/console/staff/'),
    }));
    const mine = { rows: 2, mayReplay: false, clock: "UTC", offersTokyo: false, isStaff: false };
    expect(facts).toEqual([
      mine,
      { ...mine, mayReplay: true },
      { ...mine, rows: 0 },
      { ...mine, clock: "Asia/Tokyo", offersTokyo: true },
      { ...mine, offersTokyo: true },
      { ...mine, mayReplay: true, isStaff: true },
    ]);
  });

  test("give every form a key of its own", async () => {
    const hands = await viewers(5, REPLAY);
    const path = `${hands[0]!.base}/deliveries/${(await firstDelivery()).id}`;
    const keys = (await refreshAll(hands, path)).map(
      ({ text }) => /name="_key" value="([^"]*)"/.exec(text)?.[1],
    );
    expect(new Set(keys).size).toBe(5);
    for (const key of keys) expect(key).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("end a session that was revoked, and no other", async () => {
    const hands = await Promise.all([
      viewer(),
      viewer(READ, { viewer: { id: "u-2", label: "Kim" } }),
      viewer(),
    ]);
    await refreshAll(hands);
    const { pool } = database;
    const sessions = { account_id: account.accountId, viewer_id: "u-2" };
    await changeRows(pool, "console_sessions", sessions, { revoked_at: new Date() });
    const statuses = async () =>
      (await Promise.all(hands.map((hand) => refresh(hand)))).map(({ status }) => status);
    expect(await statuses()).toEqual([200, 401, 200]);
    await changeRows(pool, "api_keys", { account_id: account.accountId }, { revoked_at: new Date() });
    expect(await statuses()).toEqual([401, 401, 401]);
  });

  test("show all that was written before they were asked for, whoever wrote it", async () => {
    const hands = await viewers(5);
    for (let n = 1; n <= 5; n++) {
      await publishOne(`new-${n}`);
      for (const { text } of await Promise.all(hands.map((hand) => refresh(hand))))
        expect(text).toContain(`new-${n}`);
    }
  });

  test("show what one's own form has done", async () => {
    const [mine, theirs] = await Promise.all([viewer(REPLAY), viewer(REPLAY)]);
    const path = `${mine.base}/deliveries/${(await firstDelivery()).id}`;
    const [before] = await refreshAll([mine, theirs], path);
    expect(before!.text).toContain("abandoned");
    const _key = /name="_key" value="([^"]*)"/.exec(before!.text)![1]!;
    expect(await mine.post(`${path}/replay`, { _key })).toMatchObject({ status: 303 });
    for (const { text } of await Promise.all([refresh(mine, path), refresh(theirs, path)]))
      expect(text).not.toContain("abandoned");
  });

  test("count for each session", async () => {
    const limited = await startTestApi(database, { RATE_LIMIT_REQUESTS: "6" });
    const hands = await viewers(2);
    const ask = ({ base, cookie }: Hand) =>
      request(limited.url, "GET", `${base}/deliveries`, { cookie, "x-refresh": "1" });
    const left: (string | null)[] = [];
    for (let round = 1; round <= 4; round++) {
      const got = await Promise.all(hands.flatMap((hand) => [ask(hand), ask(hand)]));
      expect(got.map(({ status }) => status)).toEqual(Array(4).fill(round <= 3 ? 200 : 429));
      left.push(...got.map(({ headers }) => /r=(\d+)/.exec(headers.get("ratelimit") ?? "")?.[1] ?? null));
    }
    expect(left.sort().map(Number)).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    await limited.close();
  });
});

describe("a refresh", () => {
  test("begins with those that wait already, of which there are 32 at most", async () => {
    const gather = createGather();
    await gather();
    const begun: number[] = [];
    const waiting = Array.from({ length: 40 }, (_, n) => gather().then(() => begun.push(n)));
    await waiting[0];
    await Promise.resolve();
    expect(begun).toEqual(Array.from({ length: 32 }, (_, n) => n));
    await Promise.all(waiting);
    expect(begun).toHaveLength(40);
  });
});
