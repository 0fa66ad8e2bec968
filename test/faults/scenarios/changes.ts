// What people and receivers change while deliveries are under way: secrets, endpoints, replays, odd wishes, odd texts.

import { deepEqual, equal, ok } from "node:assert/strict";
import { createHash } from "node:crypto";
import { wholeAccount } from "../../../src/base/model/reader.ts";
import { removeEndpoint, setEndpoint } from "../../../src/delivery/endpoint-sql.ts";
import { replayDelivery } from "../../../src/log/replays-sql.ts";
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

const RETENTION_MS = 7 * 86_400_000;

/** Due now, whatever the schedule says: the next attempt need not be waited for. */
async function hurry(cluster: Cluster): Promise<void> {
  await cluster.pool.query(
    "update sealpost.open_deliveries set due_at = now(), wake_at = now() where lease_token is null",
  );
}

async function statusOf(cluster: Cluster, deliveryId: string) {
  const { rows } = await cluster.pool.query<{ status: string; reason: string | null; attempts: number }>(
    "select status, reason, attempts_count as attempts from sealpost.deliveries where id = $1",
    [deliveryId],
  );
  return rows[0]!;
}

export const rotated: Scenario = {
  name: "rotated-and-moved",
  fault: "secret rotated, endpoint changed and removed between attempts",
  play: (place) =>
    // A day's schedule: no attempt comes before it is hurried, however long what comes between takes.
    withCluster(place, { env: { RETRY_WINDOW_SECONDS: "86400" } }, async (cluster) => {
      for (const path of ["/old", "/new"]) await cluster.receiver.behave(path, { status: 503 });
      const { accountId } = await cluster.createAccount("/old");
      const { deliveryId } = await cluster.producer.publish(accountId);
      const attempt = async (count: number) => {
        await cluster.receiver.waitFor(count);
        await until(async () => (await statusOf(cluster, deliveryId!)).attempts === count);
        return cluster.receiver.arrivals[count - 1]!;
      };
      const first = await attempt(1);
      deepEqual([first.path, first.signatures], ["/old", 1]);

      await cluster.rotateSecret(accountId, 3_600);
      await hurry(cluster);
      const second = await attempt(2);
      deepEqual([second.path, second.signatures], ["/old", 2], "the old secret still signs, second");

      await cluster.rotateSecret(accountId, 0);
      await setEndpoint(cluster.pool, accountId, cluster.receiver.url("/new"));
      await hurry(cluster);
      const third = await attempt(3);
      deepEqual([third.path, third.signatures], ["/new", 1], "the new endpoint, and the newest secret alone");

      await removeEndpoint(cluster.pool, accountId);
      await hurry(cluster);
      await cluster.drain(20_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      deepEqual(verdict.abandoned, { no_target: 1 });
      equal(cluster.receiver.arrivals.length, 3);
      return countsOf(verdict);
    }),
};

export const replayed: Scenario = {
  name: "replayed-in-flight",
  fault: "replays while attempts are under way and while retries are scheduled",
  play: (place) =>
    withCluster(place, { dispatchers: 2 }, async (cluster) => {
      const rounds = place.scale === "quick" ? 30 : 400;
      await cluster.receiver.behave("/", { status: 503, jitterMs: 120 });
      const { accountId } = await cluster.createAccount();
      const publications = await cluster.producer.publishMany(6, accountId);
      await cluster.receiver.waitFor(6);
      const counts: Record<string, number> = {};
      for (let n = 0; n < rounds; n++) {
        const { deliveryId } = place.chance.pick(publications);
        const outcome = await replayDelivery(
          cluster.pool,
          wholeAccount(accountId),
          deliveryId!,
          RETENTION_MS,
        );
        counts[outcome] = (counts[outcome] ?? 0) + 1;
        await wait(place.chance.between(0, 60));
      }
      await cluster.receiver.behave("/", { jitterMs: 120 });
      for (const { deliveryId } of publications) {
        await replayDelivery(cluster.pool, wholeAccount(accountId), deliveryId!, RETENTION_MS);
      }
      await cluster.drain(90_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, 6);
      equal(verdict.atOnceMax, 1, "parallel sends of one delivery");
      equal(verdict.duplicated, 0);
      ok((counts.replayed ?? 0) > 0 && (counts.not_replayable ?? 0) > 0, JSON.stringify(counts));
      return { ...countsOf(verdict), ...counts, "parallel sends": verdict.atOnceMax - 1 };
    }),
};

export const retryAfter: Scenario = {
  name: "retry-after",
  fault: "Retry-After of ten years, negative, a date, garbage",
  play: (place) =>
    withCluster(place, { env: { RETRY_WINDOW_SECONDS: "86400" } }, async (cluster) => {
      const wishes = {
        "ten years": "315360000",
        negative: "-5",
        "a far date": "Fri, 31 Dec 2099 23:59:59 GMT",
        "a past date": "Sun, 06 Nov 1994 08:49:37 GMT",
        garbage: "soon; \u00ff{}",
        "twenty seconds": "20",
      };
      const figures: Record<string, number> = {};
      for (const [name, value] of Object.entries(wishes)) {
        const path = `/${encodeURIComponent(name)}`;
        await cluster.receiver.behave(path, { status: 503, headers: { "retry-after": value } });
        const { accountId } = await cluster.createAccount(path);
        const { deliveryId } = await cluster.producer.publish(accountId);
        await until(async () => (await statusOf(cluster, deliveryId!)).attempts === 1);
        const { rows } = await cluster.pool.query<{ seconds: number }>(
          `select extract(epoch from o.due_at - a.ended_at)::float8 as seconds
           from sealpost.open_deliveries o join sealpost.attempts a using (delivery_id) where delivery_id = $1`,
          [deliveryId],
        );
        figures[`${name} s`] = Math.round(rows[0]!.seconds);
      }
      // The first delay is 15.8 s ± 20 %, and nobody gets more than the second one's 63 s.
      for (const [name, seconds] of Object.entries(figures)) {
        ok(seconds >= 12, `${name}: ${seconds} s`);
        expectAtMost(seconds, ["ten years s", "a far date s"].includes(name) ? 64 : 20, name);
      }
      return figures;
    }),
};

const DEPTH = 512;

/** Texts that a parser and a printer would not give back as they were. */
const ODD_MEMBERS = [
  `"n":${"[".repeat(DEPTH - 1)}${"]".repeat(DEPTH - 1)}`,
  '"a":"\\u0000","b":"x\\u0000y"',
  '"a":"\\ud800","b":"\\udc00\\ud800","\\ud83d":1',
  '"k":1,"k":2,"k":{"k":null,"k":[]}',
  '"n":9007199254740993,"m":0.1e-400,"e":1E400,"z":-0,"f":1.0',
  '"s":"\\u00e9\\/\\ud83d\\ude00 \u00e9 \u{1f600} \u2028"',
  ' \t"w" :\n [ 1 ,\r\n 2 ] ',
  '"__proto__":{"x":1},"constructor":null',
];

export const oddTexts: Scenario = {
  name: "odd-texts",
  fault: "deep JSON, NUL escapes, lone surrogates, duplicate keys, numbers past 2^53",
  play: (place) =>
    withCluster(place, {}, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const digests = new Map<string, string>();
      for (const [n, members] of ODD_MEMBERS.entries()) {
        const text = `{ "id" : "odd-${n}","status":"succeeded",${members}}`;
        const { rows } = await cluster.pool.query<{ id: string; stored: string }>(
          `with published as (select sealpost.publish_analysis($1, $2) as id) select id from published`,
          [accountId, text],
        );
        const { id } = rows[0]!;
        digests.set(id, createHash("sha256").update(text).digest("hex"));
        const read = await cluster.pool.query<{ text: string }>(
          "select analysis::text as text from sealpost.bodies where delivery_id = $1",
          [id],
        );
        equal(read.rows[0]!.text, text);
      }
      await cluster.drain(20_000);
      let verified = 0;
      for (const { deliveryId, isSigned, dataDigest } of cluster.receiver.arrivals) {
        equal(dataDigest, digests.get(deliveryId));
        ok(isSigned);
        verified++;
      }
      equal(verified, ODD_MEMBERS.length);
      return { published: ODD_MEMBERS.length, "verified byte for byte": verified };
    }),
};
