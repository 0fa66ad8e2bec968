// A lane's hash is no secret: an attacker who knows a victim's account id can find an origin of its own that shares it.
import { expect, it } from "vitest";
import { LANE_LIMITS } from "../../src/delivery/lane.ts";
import { Lanes } from "../../src/delivery/lanes.ts";
import { takeBackOverflow } from "../../src/delivery/promote-sql.ts";
import { openDispatchPool, publishAt } from "../support/delivery-rows.ts";
import { changeRows, insertAccount } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { takeWakeups } from "../support/wakeup-jobs.ts";

const LANE = "7";
const FLOOD = 20;

const database = await openDatabase();

it("lanes of two accounts are apart in a dispatcher, though their hashes are the same", () => {
  const lanes = new Lanes({
    ...LANE_LIMITS,
    inFlightMax: 100,
    silentInFlightMax: 25,
    laneInFlightMax: 16,
  });
  const add = (accountId: string, n: number) => {
    const deliveryId = `${accountId}#${String(n).padStart(3, "0")}`;
    expect(lanes.add({ deliveryId, accountId, lane: LANE })).toBe(true);
  };
  for (let n = 0; n < FLOOD; n += 1) add("attacker", n);
  const [hanging] = lanes.take(100);
  expect(hanging).toMatchObject({ accountId: "attacker" });
  expect(lanes.take(100), "a silent receiver gets one at a time").toEqual([]);
  add("victim", 0);
  expect(lanes.take(100)).toMatchObject([{ deliveryId: "victim#000" }]);
});

it("and are promoted, and taken back, by account", async () => {
  const pool = openDispatchPool(database);
  const at = new Date(Date.now() - 1_000);
  const publishSome = async (prefix: string, count: number) => {
    const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
    const names = Array.from({ length: count }, (_, n) => `${prefix}-${n}`);
    return { accountId, ids: (await publishAt(pool, accountId, at, names, null)).sort() };
  };
  const attacker = await publishSome("attacker", FLOOD);
  const victim = await publishSome("victim", 3);
  await changeRows(database.pool, "open_deliveries", {}, { lane: LANE });
  await takeWakeups(database.pool);

  // Ids of one moment are in no order.
  const [fromId] = [...attacker.ids, ...victim.ids].sort();
  const taken = { accountId: victim.accountId, lane: LANE, fromId: fromId!, room: FLOOD };
  expect(await takeBackOverflow(pool, [taken])).toMatchObject([{ deliveryIds: victim.ids }]);

  await changeRows(database.pool, "open_deliveries", {}, { wake_at: at });
  const laneMax = 5;
  await pool.query("select sealpost.promote(now(), 10000, $1, 200)", [laneMax]);
  const { ids } = await takeWakeups(database.pool);
  expect(ids.filter((id) => victim.ids.includes(id)).sort()).toEqual(victim.ids);
  expect(ids.filter((id) => attacker.ids.includes(id))).toHaveLength(laneMax);
  await pool.end();
});
