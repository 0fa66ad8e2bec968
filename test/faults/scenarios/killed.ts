// Dispatchers that are killed, at the worst of moments.
import { equal } from "node:assert/strict";
import { LEASE_MS, SWEEP_MS } from "../harness/cluster.ts";
import { holdTable } from "../harness/held-table.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../harness/scenario.ts";

/** From the end of a lease to the next claim there is the promoter's sweep, the job's way and the claim itself. */
const CLAIM_MS = 1_000;
const SENT_AGAIN_MS_MAX = LEASE_MS + SWEEP_MS + CLAIM_MS;

export const killedInMidPost: Scenario = {
  name: "killed-in-mid-post",
  fault: "kill -9 of a dispatcher at any moment, with POSTs under way",
  play: (place) =>
    withCluster(place, { dispatchers: 2 }, async (cluster) => {
      const kills = place.scale === "quick" ? 3 : 100;
      const accounts: string[] = [];
      for (let n = 0; n < 4; n++) {
        await cluster.receiver.behave(`/${n}`, { jitterMs: 600 });
        accounts.push((await cluster.createAccount(`/${n}`)).accountId);
      }
      const publishing = new AbortController();
      const published = cluster.producer.run(20, accounts, publishing.signal);
      await cluster.receiver.waitFor(5);
      let inFlight = 0;
      for (let n = 0; n < kills; n++) {
        await wait(place.chance.between(0, 900));
        const victim = place.chance.pick(cluster.dispatchers);
        inFlight += await cluster.countLeased();
        await victim.kill();
        await cluster.startDispatcher();
      }
      publishing.abort();
      await published;
      const drainedMs = await cluster.drain(place.scale === "quick" ? 40_000 : 900_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      expectAtMost(verdict.duplicated, inFlight + verdict.unanswered, "duplicates");
      expectAtMost(verdict.sentAgainMsMax ?? 0, SENT_AGAIN_MS_MAX, "ms until sent again");
      equal(verdict.succeeded + (verdict.abandoned.interrupted ?? 0), verdict.published);
      return {
        kills,
        ...countsOf(verdict),
        "in flight at kills": inFlight,
        "sent again ms": verdict.sentAgainMsMax,
        "sent again ms allowed": SENT_AGAIN_MS_MAX,
        "drained ms": drainedMs,
      };
    }),
};

export const killedBeforeRecording: Scenario = {
  name: "killed-before-recording",
  fault: "kill -9 of a dispatcher between a 2xx and its record",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const count = 8;
      const table = await holdTable(cluster.databaseUrl, "sealpost.attempts");
      await cluster.producer.publishMany(count, accountId);
      await cluster.receiver.waitFor(count, ({ answer }) => answer !== null);
      await cluster.dispatchers[0]!.kill();
      // What it had already sent to the database must not arrive there either.
      await table.endWaiters();
      const [next] = await Promise.all([cluster.startDispatcher(), table.letGo()]);
      await cluster.drain(30_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, count);
      // What the receiver accepted and nobody wrote down has to be sent again: once each.
      equal(verdict.duplicated, count);
      equal(verdict.interrupted, count);
      expectAtMost(verdict.sentAgainMsMax, SENT_AGAIN_MS_MAX, "ms until sent again");
      equal(next.errors, "");
      return { ...countsOf(verdict), "sent again ms": verdict.sentAgainMsMax };
    }),
};

export const unwritableResult: Scenario = {
  name: "unwritable-result",
  fault: "the result cannot be written after a 2xx, for longer than the lease lasts",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const count = 8;
      const table = await holdTable(cluster.databaseUrl, "sealpost.attempts");
      await cluster.producer.publishMany(count, accountId);
      await cluster.receiver.waitFor(count, ({ answer }) => answer !== null);
      await until(async () => (await cluster.countLeased()) === 0);
      await table.letGo();
      await cluster.drain(30_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, count);
      // A last try that still waits for the table may be let in; all others are sent again.
      expectAtMost(verdict.duplicated, count, "duplicates");
      equal(verdict.duplicated, verdict.interrupted);
      return { ...countsOf(verdict), "sent again ms": verdict.sentAgainMsMax };
    }),
};

export const resultWrittenLate: Scenario = {
  name: "result-written-late",
  fault: "the result cannot be written after a 2xx, but can before the lease ends",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const table = await holdTable(cluster.databaseUrl, "sealpost.attempts");
      await cluster.producer.publishMany(8, accountId);
      await cluster.receiver.waitFor(8, ({ answer }) => answer !== null);
      await wait(1_000);
      await table.letGo();
      await cluster.drain(30_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.duplicated, 0);
      equal(verdict.interrupted, 0);
      return countsOf(verdict);
    }),
};
