import { Pool } from "undici";
import type { SealpostProcess } from "../../support/sealpost-process.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, formatNumber, median } from "../figures.ts";
import { createKeys } from "../keys.ts";
import { cpuMicroseconds } from "../measuring/processes.ts";
import { seedLog } from "../seeding.ts";

const DELIVERIES = 20_000;
const DAYS = 4;
const ATTEMPTS = 8;
const ANALYSIS = JSON.stringify({ id: "read", status: "succeeded", text: "m".repeat(1_000) });
/** As at 3,000 a second, each of which takes 10 ms while both processors are busy. */
const IN_FLIGHT = 32;
/** Of each read: V8 is still optimizing after 20,000 of all. */
const WARM_UP = 4_000;
const REQUESTS = 1_500;
const ROUNDS = 9;
/** 3,000 reads a second of one processor. */
const GOAL_MICROSECONDS = 333;

export const apiReads: BenchCase<Bench> = {
  name: "api-reads",
  says:
    "CPU (user and system) of the API process for a read, authentication, limiter and log line included, over kept " +
    "connections with 32 in flight, of an account with 20,000 deliveries: the median of 9 rounds of 1,500 requests.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const [accountId = ""] = bench.server.accountIds;
    const paths = await fill(database, accountId);
    const apiKeys = await createKeys(database, [accountId]);
    const api = await bench.startApi(database);
    const costs = await measure(api, apiKeys.get(accountId) ?? "", paths, bench.scale);
    await api.stop();
    await database.drop();
    return [...costs].map(([name, rounds]) => {
      tell(`${name}: ${rounds.map(formatNumber).join(", ")} µs`);
      return {
        name,
        value: median(rounds),
        unit: "µs of CPU",
        goal: { atMost: GOAL_MICROSECONDS },
      };
    });
  },
};

/** What is read, by its name. */
async function fill({ pool }: BenchDatabase, accountId: string): Promise<ReadonlyMap<string, string>> {
  const log = { firstDaysAgo: 1, days: DAYS, deliveries: DELIVERIES, body: null };
  await seedLog(pool, [accountId], { ...log, largeAccountId: accountId });
  await pool.query("select sealpost.publish_analysis($1, $2)", [accountId, ANALYSIS]);
  const { rows } = await pool.query<{ id: string }>(
    "select id from sealpost.deliveries where account_id = $1 and status = 'abandoned' limit 1",
    [accountId],
  );
  const id = rows[0]?.id ?? "";
  // The seed has only the last of them.
  await pool.query(
    `insert into sealpost.attempts (delivery_id, account_id, run, number, started_at, ended_at, dns_ms, connect_ms,
       tls_ms,
       first_byte_ms, status_code, outcome, error_code, target_url, remote_address, response_headers, response_excerpt)
     select delivery_id, account_id, run, n, started_at, ended_at, 0.5, 1.25, 3.75, 12.5, 503, 'rejected', 'status_503',
       target_url, '192.0.2.1', '{"content-type":"text/html","server":"nginx"}',
       repeat('<p>Service Unavailable</p>', 10)
     from sealpost.attempts, generate_series(1, $2::integer - 1) as n where delivery_id = $1`,
    [id, ATTEMPTS],
  );
  const list = "/v1/webhooks/deliveries";
  return new Map([
    ["the endpoint", "/v1/webhooks/endpoint"],
    ["an analysis of 1 KB", "/v1/analyses/read"],
    [`a delivery with ${ATTEMPTS} attempts`, `${list}/${id}`],
    ["a page of 50 deliveries", list],
    ["a page of 50 abandoned", `${list}?status=abandoned`],
    ["a page of 50 failed, with attempts to come", `${list}?status=failed`],
  ]);
}

/** Microseconds per request, by round. The rounds of all reads take turns, so that none has a quieter machine. */
async function measure(
  { pid, url }: SealpostProcess,
  apiKey: string,
  paths: ReadonlyMap<string, string>,
  scale: number,
): Promise<ReadonlyMap<string, number[]>> {
  const connections = new Pool(url, { connections: IN_FLIGHT });
  const headers = { authorization: `Bearer ${apiKey}` };
  const read = async (path: string, count: number) => {
    let left = count;
    const reader = async () => {
      while (left-- > 0) {
        const { statusCode, body } = await connections.request({ path, method: "GET", headers });
        const bytes = await body.arrayBuffer();
        if (statusCode !== 200) throw new Error(`${path}: ${statusCode} ${Buffer.from(bytes).toString()}`);
      }
    };
    await Promise.all(Array.from({ length: IN_FLIGHT }, reader));
  };
  for (const path of paths.values()) await read(path, Math.ceil(WARM_UP * scale));
  const requests = Math.ceil(REQUESTS * scale);
  const costs = new Map([...paths.keys()].map((name) => [name, [] as number[]]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, path] of paths) {
      const before = cpuMicroseconds(pid);
      await read(path, requests);
      costs.get(name)?.push((cpuMicroseconds(pid) - before) / requests);
    }
  }
  await connections.close();
  return costs;
}
