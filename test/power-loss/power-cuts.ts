// The power is cut, over and over, while many publish, deliver and read.
import { equal, ok } from "node:assert/strict";
import { join } from "node:path";
import { migrate } from "../../src/base/database/migrate.ts";
import type { Cluster } from "../faults/harness/cluster.ts";
import { HttpProducer } from "../faults/harness/http-producer.ts";
import { OwnPostgres } from "../faults/harness/own-postgres.ts";
import { countsOf, expectSafe, type Figures, until, wait, withCluster } from "../faults/harness/scenario.ts";
import { createAccounts, Reader } from "../faults/scenarios/feed.ts";
import type { Chance } from "../simulation/chance.ts";
import { LazyFs } from "./lazy-fs.ts";

const IN_FLIGHT = 16;
const BY_SQL_PER_SECOND = 50;
/** Acknowledged between two cuts, at least. */
const MORE = 40;

export type PowerOptions = {
  readonly cuts: number;
  readonly chance: Chance;
  /** Of the server: `fsync: "off"`, to see that its loss is found. */
  readonly settings?: Readonly<Record<string, string>>;
  readonly tell?: ((line: string) => void) | undefined;
};

/**
 * By turns the whole machine's power is cut, and the database's alone; nothing survives that was not synced, or some
 * pages of it do. Rejects when anything that was acknowledged is not there in the end, is there twice, or was read from
 * the feed and is not in it.
 */
export async function playPowerCuts({ cuts, chance, settings = {}, tell }: PowerOptions): Promise<Figures> {
  const disk = await LazyFs.mount();
  try {
    // So long a name that its socket, and the file by which this process claims the folder, lie elsewhere.
    const dataDir = join(disk.folder, `database-${"x".repeat(80)}`);
    const postgres = await OwnPostgres.start({ dataDir, settings: { ...SMALL_MEMORY, ...settings } });
    try {
      await migrate({ databaseUrl: postgres.url });
      const place = { databaseUrl: postgres.url, dispatchers: 0 };
      return await withCluster(NO_PLACE, place, (cluster) =>
        cutOverAndOver(cluster, postgres, disk, { cuts, chance, tell }),
      );
    } finally {
      await postgres.close().catch(() => undefined);
    }
  } finally {
    await disk.end();
  }
}

/** So that tables are written all the time, and not only at checkpoints. */
const SMALL_MEMORY = { shared_buffers: "4MB" };

/** Its databases are not asked for. */
const NO_PLACE = { newDatabase: () => Promise.reject(new Error("no other database")) } as never;

async function cutOverAndOver(
  cluster: Cluster,
  postgres: OwnPostgres,
  disk: LazyFs,
  { cuts, chance, tell = () => undefined }: PowerOptions,
): Promise<Figures> {
  const accounts = await createAccounts(cluster, ["analyses:read", "analyses:publish"]);
  const { publications } = cluster.producer;
  let api = await cluster.startApi();
  const start = async () => {
    if (api.process.hasEnded) api = await cluster.startApi();
    const missing = 2 - cluster.dispatchers.filter((one) => one !== api.process).length;
    await Promise.all(Array.from({ length: missing }, () => cluster.startDispatcher()));
  };
  const publishing = new AbortController();
  const reading = new AbortController();
  const producer = new HttpProducer(accounts, () => api.url, publications);
  const readers = accounts.map((account) => new Reader(account, () => api.url, reading.signal));
  const byHttp = producer.run(IN_FLIGHT, publishing.signal);
  const accountIds = accounts.map(({ accountId }) => accountId);
  const bySql = cluster.producer.run(BY_SQL_PER_SECOND, accountIds, publishing.signal);
  const published = Promise.all([byHttp, bySql]);
  const untilMoreAcknowledged = () => {
    const wanted = producer.acknowledged + MORE;
    return Promise.race([until(() => producer.acknowledged >= wanted, 60_000), published]);
  };

  let lost = 0;
  for (let n = 0; n < cuts; n++) {
    await start();
    await untilMoreAcknowledged();
    await wait(chance.between(0, 400));
    const isWhole = n % 2 === 0;
    const ended = isWhole ? cluster.dispatchers.map((one) => one.kill()) : [];
    await Promise.all([...ended, postgres.end("kill")]);
    const files = await disk.cut(n % 4 < 2 ? null : chance.between(1, 1_000_000));
    lost += files;
    await postgres.startAgain();
    await cluster.pool.query("select from sealpost.settings").catch((cause: unknown) => {
      throw new Error("not even the schema is there after a cut", { cause });
    });
    tell(
      `cut ${n + 1}: ${isWhole ? "everything" : "the database"}, ${files} files were not as they had been`,
    );
  }
  await start();
  await untilMoreAcknowledged();
  publishing.abort();
  await published;
  const drainedMs = await cluster.drain(120_000);
  expectSafe(await cluster.check());
  const repeated = await producer.repeat(IN_FLIGHT);
  const verdict = await cluster.check();
  expectSafe(verdict);
  equal(verdict.succeeded, verdict.published);

  const read = () => readers.reduce((sum, { ids }) => sum + ids.length, 0);
  await until(() => read() >= verdict.published, 60_000);
  reading.abort();
  await Promise.all(readers.map((reader) => reader.done));
  for (const [n, { ids }] of readers.entries()) {
    equal(ids.length, new Set(ids).size, "an event was read twice");
    const own = publications.filter(({ accountId }) => accountId === accountIds[n]);
    equal(ids.length, own.length, "the feed does not have what was published");
    const known = new Set(own.map(({ deliveryId }) => deliveryId));
    ok(
      ids.every((id) => known.has(id)),
      "an event was read that is not there any more",
    );
  }
  const { rows } = await cluster.pool.query<{ twice: string }>(
    `select count(*) - count(distinct (account_id, delivery_id)) as twice from sealpost.feed`,
  );
  equal(rows[0]!.twice, "0", "an event has two positions");
  return {
    cuts,
    "files changed by cuts": lost,
    ...countsOf(verdict),
    "committed without an answer": producer.found,
    "answers repeated": repeated,
    "events read": read(),
    "drained ms": drainedMs,
  };
}
