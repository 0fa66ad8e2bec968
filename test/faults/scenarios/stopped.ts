// Dispatchers that are asked to end, and such as stand still and go on when others have taken over.
import { deepEqual, equal, ok } from "node:assert/strict";
import { startDatabaseProxy } from "../../support/database-proxy.ts";
import { startEgressProxy } from "../../support/egress-proxy.ts";
import type { SealpostProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";
import { type Cluster, DEADLINE_MS, LEASE_MS } from "../harness/cluster.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Figures,
  type Place,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../harness/scenario.ts";

export const stoppedUnderLoad: Scenario = {
  name: "stopped-under-load",
  fault: "SIGTERM with POSTs under way",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const accounts = [];
      for (let n = 0; n < 4; n++) {
        // No slower on a slow machine, whose deadline is longer: its backlog would outlast the drain.
        await cluster.receiver.behave(`/${n}`, { jitterMs: 500 });
        accounts.push((await cluster.createAccount(`/${n}`)).accountId);
      }
      const publishing = new AbortController();
      const published = cluster.producer.run(40, accounts, publishing.signal);
      const stops = place.scale === "quick" ? 2 : 20;
      let stopMsMax = 0;
      let inFlight = 0;
      for (let n = 0; n < stops; n++) {
        await cluster.receiver.waitFor(cluster.receiver.arrivals.length + 5);
        await wait(place.chance.between(0, 500));
        const [old] = cluster.dispatchers;
        await cluster.startDispatcher();
        inFlight += await cluster.countLeased();
        const askedAt = performance.now();
        equal(await old!.stop(), 0);
        stopMsMax = Math.max(stopMsMax, Math.round(performance.now() - askedAt));
        equal(old!.errors, "");
      }
      publishing.abort();
      await published;
      const drainedMs = await cluster.drain(30_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      ok(inFlight > 0);
      equal(verdict.interrupted, 0);
      expectAtMost(verdict.duplicated, verdict.unanswered, "duplicates");
      equal(verdict.succeeded, verdict.published);
      expectAtMost(stopMsMax, DEADLINE_MS + patience(2_000), "ms to stop");
      const took = { "stopped ms": stopMsMax, "drained ms": drainedMs };
      return { stops, ...countsOf(verdict), "in flight at stops": inFlight, ...took };
    }),
};

/** Stands still for `stillMs` with POSTs under way that the receiver accepts meanwhile. */
async function playZombie(
  place: Place,
  stillMs: number,
  imports: readonly string[],
  stop: (zombie: SealpostProcess) => void,
  goOn: (zombie: SealpostProcess) => void,
): Promise<Figures> {
  return await withCluster(place, { dispatchers: 0 }, async (cluster) => {
    const zombie = await cluster.startDispatcher({}, imports);
    await cluster.receiver.behave("/", { delayMs: 0.5 * DEADLINE_MS });
    const { accountId } = await cluster.createAccount("/");
    await cluster.producer.publishMany(2, accountId);
    await cluster.receiver.waitFor(2);
    const stoppedAt = performance.now();
    stop(zombie);
    const heir = await cluster.startDispatcher();
    await cluster.drain(LEASE_MS + 20_000);
    const before = await everything(cluster);
    await wait(Math.max(0, stillMs - (performance.now() - stoppedAt)));
    const isLate = ({ msg }: Readonly<Record<string, unknown>>) => String(msg).includes("lost its lease");
    const told = zombie.waitForLine(isLate);
    goOn(zombie);
    await told;
    // It goes on as if nothing had happened, and so does everybody else.
    await cluster.producer.publishMany(4, accountId);
    await heir.stop();
    await cluster.drain(30_000);
    const after = await everything(cluster);
    const changed = before.filter((row, n) => row !== after[n]).length;
    const verdict = await cluster.check();
    expectSafe(verdict);
    deepEqual(after.slice(0, before.length), before);
    equal(verdict.succeeded, 6);
    expectAtMost(verdict.duplicated, 2 + verdict.unanswered, "duplicates");
    return { ...countsOf(verdict), "changed by the zombie": changed, "still ms": stillMs };
  });
}

/**
 * What is on its way says that nothing was sent (the egress proxy did not answer) and gives the lease back, so there is
 * no attempt that the log would refuse as known already: only the fence is left to stop it.
 */
export const lateResult: Scenario = {
  name: "late-result",
  fault: "a result reaches the database when the lease is somebody else's already",
  play: async (place) => {
    const egress = await startEgressProxy({ answer: "" });
    const { url: databaseUrl } = await place.newDatabase();
    const line = await startDatabaseProxy(databaseUrl);
    try {
      const options = { databaseUrl, dispatchers: 0, env: { RETRY_WINDOW_SECONDS: "86400" } };
      return await withCluster(place, options, async (cluster) => {
        await cluster.receiver.behave("/", { status: 503 });
        const { accountId } = await cluster.createAccount("/");
        await cluster.startDispatcher({
          DATABASE_URL: line.url,
          EGRESS_PROXY_URL: `http://127.0.0.1:${egress.port}`,
        });
        await cluster.producer.publish(accountId);
        await until(() => egress.heads.length > 0);
        line.hold();
        const heir = await cluster.startDispatcher({ LOG_LEVEL: "debug" });
        await heir.waitForLine(({ next }) => next === "failed");
        const before = await everything(cluster);
        line.letGo();
        await wait(1_000);
        deepEqual(await everything(cluster), before);
        return { "changed by the late result": 0, arrivals: cluster.receiver.arrivals.length };
      });
    } finally {
      await line.close();
      await egress.close();
    }
  },
};

/** Every row about the deliveries so far, in the order of publishing. */
async function everything(cluster: Cluster): Promise<string[]> {
  const { rows } = await cluster.pool.query<{ row: string }>(
    `select row_to_json(d)::text || coalesce((
         select json_agg(a order by a.run, a.number)::text from sealpost.attempts a where a.delivery_id = d.id), '')
       || coalesce((select row_to_json(o)::text from sealpost.open_deliveries o where o.delivery_id = d.id), '') as row
     from sealpost.deliveries d order by d.id`,
  );
  return rows.map(({ row }) => row);
}

export const zombie: Scenario = {
  name: "zombie",
  fault: "SIGSTOP of a dispatcher for longer than its leases, then SIGCONT",
  play: (place) =>
    playZombie(
      place,
      place.scale === "quick" ? 0 : 60_000,
      [],
      (process) => process.freeze(),
      (process) => process.thaw(),
    ),
};

/** Asked by SIGUSR2, it does nothing else for this long. */
const BLOCKED_MS = 2 * LEASE_MS;
const blocks = `process.on("SIGUSR2", () => { const end = Date.now() + ${BLOCKED_MS}; while (Date.now() < end); })`;

export const blockedEventLoop: Scenario = {
  name: "blocked-event-loop",
  fault: "the event loop of a dispatcher is blocked for longer than its leases",
  play: (place) =>
    playZombie(
      place,
      0,
      [`data:text/javascript,${encodeURIComponent(blocks)}`],
      (zombie) => process.kill(zombie.pid, "SIGUSR2"),
      () => undefined,
    ),
};
