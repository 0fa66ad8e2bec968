// What surrounds the service: its way out, its clock, its migrations, too much text, too many names.
import { equal, ok } from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { request } from "node:http";
import pg from "pg";
import { startEgressProxy } from "../../support/egress-proxy.ts";
import { freePort } from "../../support/ports.ts";
import { SealpostProcess } from "../../support/sealpost-process.ts";
import type { Cluster } from "../harness/cluster.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../harness/scenario.ts";

async function attemptsSoFar(cluster: Cluster): Promise<number> {
  const { rows } = await cluster.pool.query<{ n: number }>(
    "select coalesce(sum(attempts_count), 0)::integer as n from sealpost.deliveries",
  );
  return rows[0]!.n;
}

export const egressProxy: Scenario = {
  name: "egress-proxy",
  fault: "the egress proxy is down, hangs, and works again",
  play: async (place) => {
    const [hanging, working] = [await startEgressProxy({ answer: "" }), await startEgressProxy()];
    try {
      return await withCluster(place, { dispatchers: 0 }, async (cluster) => {
        const { accountId } = await cluster.createAccount();
        await cluster.producer.publishMany(3, accountId);
        for (const port of [await freePort(), hanging.port]) {
          const dispatcher = await cluster.startDispatcher({ EGRESS_PROXY_URL: `http://127.0.0.1:${port}` });
          await wait(2_000);
          // What the first one gave back is due again when its pause is over.
          if (port === hanging.port) await until(() => hanging.heads.length > 0);
          equal(await attemptsSoFar(cluster), 0, "attempts used up by the proxy's failure");
          await dispatcher.stop();
        }
        await cluster.startDispatcher({ EGRESS_PROXY_URL: `http://127.0.0.1:${working.port}` });
        await cluster.drain(30_000);
        const verdict = await cluster.check();
        expectSafe(verdict);
        equal(verdict.succeeded, 3);
        equal(verdict.attempts, 3);
        ok(working.heads.length > 0);
        return { ...countsOf(verdict), "attempts used up": verdict.attempts - verdict.succeeded };
      });
    } finally {
      await hanging.close();
      await working.close();
    }
  },
};

const AHEAD_MS = 3_600_000;
const shiftsTheClock = `
const Real = Date;
globalThis.Date = class extends Real {
  constructor(...given) { super(...(given.length === 0 ? [Real.now() + ${AHEAD_MS}] : given)); }
  static now() { return Real.now() + ${AHEAD_MS}; }
};`;

export const wrongClock: Scenario = {
  name: "wrong-clock",
  fault: "the wall clock of a dispatcher is an hour ahead",
  play: (place) =>
    withCluster(place, { dispatchers: 0, env: { RETRY_WINDOW_SECONDS: "600" } }, async (cluster) => {
      await cluster.receiver.behave("/", { status: 503 });
      const { accountId } = await cluster.createAccount();
      const dispatcher = await cluster.startDispatcher({}, [
        `data:text/javascript,${encodeURIComponent(shiftsTheClock)}`,
      ]);
      await cluster.producer.publishMany(3, accountId);
      await cluster.receiver.waitFor(9);
      await cluster.receiver.behave("/", {});
      await cluster.drain(60_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, 3);
      const { rows } = await cluster.pool.query<{ off: number; early: number }>(
        `select max(abs(extract(epoch from now() - started_at)))::float8 as off,
           min(extract(epoch from started_at - sealpost.uuid_v7_time(delivery_id)))::float8 as early
         from sealpost.attempts`,
      );
      expectAtMost(rows[0]!.off, 120, "s that the log's times are off");
      const { metrics } = await dispatcher.ready;
      const text = await (await fetch(new URL("/metrics", String(metrics)))).text();
      const told = Number(/^sealpost_clock_difference_seconds\S* (\S+)$/m.exec(text)?.[1]);
      ok(Math.abs(told - AHEAD_MS / 1000) < 5, `the metric says ${told} s`);
      return { ...countsOf(verdict), "told by the metric s": Math.round(told) };
    }),
};

export const migratedTogether: Scenario = {
  name: "migrated-together",
  fault: "several processes migrate at once",
  play: async (place) => {
    const { url } = await place.newDatabase();
    const admin = new pg.Client({ connectionString: url });
    await admin.connect();
    const name = `sealpost_fresh_${randomBytes(6).toString("hex")}`;
    await admin.query(`create database ${name} template template0`);
    try {
      const fresh = new URL(url);
      fresh.pathname = `/${name}`;
      const processes = Array.from(
        { length: 4 },
        () => new SealpostProcess(["migrate"], { DATABASE_URL: fresh.href, METRICS_PORT: "0" }),
      );
      for (const process of processes) equal((await process.ended).code, 0, process.errors);
      const client = new pg.Client({ connectionString: fresh.href });
      await client.connect();
      const { rows } = await client.query<{ applied: number; names: number }>(
        "select count(*)::integer as applied, count(distinct name)::integer as names from sealpost.migrations",
      );
      await client.end();
      ok(rows[0]!.applied > 0);
      equal(rows[0]!.applied, rows[0]!.names);
      return { processes: processes.length, "migrations applied once": rows[0]!.applied };
    } finally {
      await admin.query(`drop database ${name} with (force)`);
      await admin.end();
    }
  },
};

/** Sends so many bytes as one analysis, and says what was answered; the server may hang up in the middle. */
function postBytes(url: string, apiKey: string, bytes: number): Promise<{ status: number; code: string }> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${apiKey}`,
      "content-type": "application/json",
      "idempotency-key": randomBytes(8).toString("hex"),
    };
    const call = request(new URL("/v1/analyses", url), { method: "POST", headers }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => {
        text += part;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, code: JSON.parse(text).code }));
    });
    call.on("error", reject);
    const piece = Buffer.alloc(65_536, "x");
    let left = bytes;
    const write = () => {
      while (left > 0) {
        left -= piece.length;
        if (!call.write(piece)) {
          call.once("drain", write);
          return;
        }
      }
      call.end('"}}');
    };
    call.write('{"analysis":{"id":"big","status":"succeeded","x":"');
    write();
  });
}

export const tooLarge: Scenario = {
  name: "too-large",
  fault: "payloads over the limit",
  play: (place) =>
    withCluster(place, { dispatchers: 0 }, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const apiKey = await cluster.createApiKey(accountId, ["analyses:publish"]);
      const { process, url } = await cluster.startApi();
      equal((await postBytes(url, apiKey, 2_000_000)).code, "payload_too_large");
      const before = await process.rssBytes();
      let refused = 0;
      for (let n = 0; n < 5; n++) {
        const answer = await postBytes(url, apiKey, 100_000_000).catch(() => null);
        if (answer === null || answer.status === 413) refused++;
      }
      equal(refused, 5);
      const growth = (await process.rssBytes()) - before;
      expectAtMost(growth, 50_000_000, "bytes that the API grew by");
      const text = `{"id":"big","status":"succeeded","x":"${"x".repeat(1_048_576)}"}`;
      const refusal = await cluster.pool
        .query("select sealpost.publish_analysis($1, $2)", [accountId, text])
        .then(
          () => null,
          (error: pg.DatabaseError) => error.code,
        );
      equal(refusal, "SP003");
      equal(await cluster.countOpen(), 0);
      return { "refused of 5 × 100 MB": refused, "RSS growth MB": Math.round(growth / 1_000_000) };
    }),
};

const PATIENT = { LOG_LEVEL: "warn", ATTEMPT_DEADLINE_MS: "15000" };

export const manyHosts: Scenario = {
  name: "many-hosts",
  fault: "very many distinct hosts",
  play: (place) =>
    // Every host costs a handshake, which takes its time on a machine that has nothing else to do but handshakes.
    withCluster(place, { dispatchers: 0, env: PATIENT }, async (cluster) => {
      const hosts = place.scale === "quick" ? 300 : 20_000;
      const inFlightMax = 100;
      const { accountId } = await cluster.createAccount();
      const dispatcher = await cluster.startDispatcher();
      const before = await dispatcher.rssBytes();
      // Its files, pipes and connections to the database, before there is anything to deliver.
      const descriptorsBefore = await dispatcher.descriptorsCount();
      let drainedMs = 0;
      const publishAndDrain = async () => {
        for (let from = 0; from < hosts; from += 100) {
          await Promise.all(
            Array.from({ length: Math.min(100, hosts - from) }, (_, n) =>
              cluster.producer.publish(accountId, cluster.receiver.url("/", `h${from + n}.many.localhost`)),
            ),
          );
        }
        drainedMs = await cluster.drain(300_000);
      };
      let rss = 0;
      const descriptors = await dispatcher.peakDescriptorsCount(async () => {
        rss = await dispatcher.peakRssBytes(publishAndDrain);
      });
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, hosts);
      expectAtMost(descriptors - descriptorsBefore, inFlightMax + 100, "descriptors more than at first");
      return {
        ...countsOf(verdict),
        "in flight allowed": inFlightMax,
        "descriptors at first": descriptorsBefore,
        descriptors,
        "RSS growth MB": Math.round((rss - before) / 1_000_000),
        "drained ms": drainedMs,
      };
    }),
};
