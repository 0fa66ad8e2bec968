// A payload that kills whoever posts it.
import { deepEqual, equal } from "node:assert/strict";
import { DEADLINE_MS } from "../harness/cluster.ts";
import { countsOf, expectAtMost, type Scenario, until, withCluster } from "../harness/scenario.ts";

const MARK = "poisonous-payload";
/** Long enough for the others to be under way too. */
const DIES_AFTER_MS = 300;

/** As a bug of an engine would: making the body ends the process, without a word, a moment later. */
const isPoisoned = `
const from = Buffer.from;
Buffer.from = function (...given) {
  if (typeof given[0] === "string" && given[0].includes("${MARK}")) {
    setTimeout(() => process.kill(process.pid, "SIGKILL"), ${DIES_AFTER_MS});
  }
  return Reflect.apply(from, Buffer, given);
};`;

export const poison: Scenario = {
  name: "poison",
  fault: "a payload that kills the worker, one among many in flight",
  play: (place) => {
    const count = place.scale === "quick" ? 40 : 1_000;
    const env = { DISPATCH_IN_FLIGHT_MAX: String(count), LOG_LEVEL: "warn" };
    return withCluster(place, { dispatchers: 0, env }, async (cluster) => {
      // All are still under way when the process dies, and again at the second time.
      for (const path of ["/", "/poisoned"]) {
        await cluster.receiver.behave(path, { delayMs: 0.7 * DEADLINE_MS });
      }
      const { accountId: poisoned } = await cluster.createAccount("/poisoned");
      const { rows } = await cluster.pool.query<{ id: string }>(
        "select sealpost.publish_analysis($1, $2) as id",
        [poisoned, `{"id":"${MARK}","status":"succeeded"}`],
      );
      const poisonId = rows[0]!.id;
      // Two in each lane, so that all are in flight at once.
      for (let n = 0; n < Math.ceil((count - 1) / 2); n++) {
        const { accountId } = await cluster.createAccount("/");
        await cluster.producer.publishMany(2, accountId);
      }
      let restarts = -1;
      const ending = new AbortController();
      const supervising = (async () => {
        while (!ending.signal.aborted) {
          restarts++;
          const dispatcher = await cluster.startDispatcher({}, [
            `data:text/javascript,${encodeURIComponent(isPoisoned)}`,
          ]);
          await Promise.race([dispatcher.ended, new Promise((resolve) => (ending.signal.onabort = resolve))]);
        }
      })();
      await until(() => restarts >= 2, 60_000);
      // From now on they go alone, and the others need not be slow any more.
      await cluster.receiver.behave("/", {});
      const drainedMs = await cluster.drain(place.scale === "quick" ? 60_000 : 300_000);
      ending.abort();
      await supervising;
      const verdict = await cluster.check();
      const others = cluster.producer.publications.length;
      const { rows: ended } = await cluster.pool.query(
        `select d.status, d.reason, d.attempts_count,
           (select count(*)::integer from sealpost.attempts a
            where a.delivery_id = d.id and a.outcome = 'interrupted') as interrupted
         from sealpost.deliveries d where d.id = $1`,
        [poisonId],
      );
      deepEqual(ended, [{ status: "abandoned", reason: "interrupted", attempts_count: 3, interrupted: 3 }]);
      equal(verdict.lost, 0);
      equal(verdict.succeeded, others, "the others arrive");
      expectAtMost(restarts, 3, "restarts");
      // The producer does not know of the poison, which is the one delivery that it did not ask for.
      const unexpected = verdict.unexpected - 1;
      equal(unexpected, 0);
      return { ...countsOf(verdict), unexpected, "in flight": count, restarts, "drained ms": drainedMs };
    });
  },
};
