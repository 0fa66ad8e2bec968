// The power is cut, over and over, while many publish, deliver, read and store documents.
import { deepEqual, equal } from "node:assert/strict";
import { join } from "node:path";
import { migrate } from "../../src/base/database/migrate.ts";
import type { Cluster } from "../faults/harness/cluster.ts";
import { HttpProducer } from "../faults/harness/http-producer.ts";
import { OwnPostgres } from "../faults/harness/own-postgres.ts";
import { countsOf, expectSafe, type Figures, until, wait, withCluster } from "../faults/harness/scenario.ts";
import { createAccounts, Reader } from "../faults/scenarios/feed.ts";
import type { Chance } from "../simulation/chance.ts";
import { LazyFs } from "./lazy-fs.ts";
import { StoredDocuments } from "./stored-documents.ts";

const IN_FLIGHT = 16;
const BY_SQL_PER_SECOND = 20;
/** Acknowledged between two cuts, at least. */
const MORE = 40;
/** And over HTTP at most, while processes take their time to start. */
const MOST = 300;

/**
 * A server that acknowledges before it syncs, and syncs only each ten seconds, so that a cut comes between the two. It
 * would sync earlier where a changed page is written, and so it has memory for all of them.
 */
export const LATE_SYNC: Pick<PowerOptions, "settings" | "checkpoints"> = {
  settings: {
    synchronous_commit: "off",
    wal_writer_delay: "10s",
    wal_writer_flush_after: "1GB",
    bgwriter_lru_maxpages: "0",
    shared_buffers: "128MB",
  },
  checkpoints: false,
};

export type PowerOptions = {
  readonly cuts: number;
  readonly chance: Chance;
  /** Of the server: `fsync: "off"`, to see that its loss is found. */
  readonly settings?: Readonly<Record<string, string>>;
  /** False: nobody asks for any, each of which syncs what was acknowledged before. */
  readonly checkpoints?: boolean;
  readonly tell?: ((line: string) => void) | undefined;
};

/**
 * By turns the whole machine's power is cut, and twice the database's alone; what was not synced is lost, or a part of
 * its pages. After each cut everything is compared. Rejects when anything that was acknowledged is not there, is there
 * twice, or was read from the feed and is not where it was, and when a page is not what was written.
 */
export async function playPowerCuts({ settings = {}, ...options }: PowerOptions): Promise<Figures> {
  await using resources = new AsyncDisposableStack();
  const [disk, objects] = [await LazyFs.mount(), await LazyFs.mount()];
  resources.defer(() => Promise.all([disk.end(), objects.end()]).then(() => undefined));
  // So long a name that its socket, and the file by which this process claims the folder, lie elsewhere.
  const dataDir = join(disk.folder, `database-${"x".repeat(80)}`);
  const postgres = await OwnPostgres.start({ dataDir, settings: { ...SMALL_MEMORY, ...settings } });
  resources.defer(() => postgres.close().catch(() => undefined));
  await migrate({ databaseUrl: postgres.url });
  // On a busy machine a minute is soon over.
  const env = { STATE_DIR: objects.folder, RATE_LIMIT_REQUESTS: "1000000", RETRY_WINDOW_SECONDS: "600" };
  const place = { databaseUrl: postgres.url, dispatchers: 0, env };
  return await withCluster(NO_PLACE, place, (cluster) =>
    cutOverAndOver({ cluster, postgres, disk, objects }, options),
  );
}

/** So that tables are written all the time, and not only at checkpoints. */
const SMALL_MEMORY = { shared_buffers: "4MB" };

/** Its databases are not asked for. */
const NO_PLACE = { newDatabase: () => Promise.reject(new Error("no other database")) } as never;

type Machine = {
  readonly cluster: Cluster;
  readonly postgres: OwnPostgres;
  readonly disk: LazyFs;
  /** The disk of the service's own processes, where documents are. */
  readonly objects: LazyFs;
};

async function cutOverAndOver(machine: Machine, options: PowerOptions): Promise<Figures> {
  const { cluster } = machine;
  const { cuts, chance, checkpoints = true, tell = () => undefined } = options;
  await cluster.pool.query("create extension pg_prewarm");
  const accounts = await createAccounts(cluster, ["analyses:read", "analyses:publish"]);
  await cluster.pool.query("checkpoint");
  const accountIds = accounts.map(({ accountId }) => accountId);
  const { publications } = cluster.producer;
  let api = await cluster.startApi();
  const urlOf = () => api.url;
  const start = async () => {
    if (api.process.hasEnded) api = await cluster.startApi();
    if (cluster.dispatchers.every((one) => one === api.process)) await cluster.startDispatcher();
  };
  const publishing = new AbortController();
  const reading = new AbortController();
  const producer = new HttpProducer(accounts, urlOf, publications);
  const documents = await StoredDocuments.open(cluster, accountIds[0]!, urlOf);
  const readers = accounts.map((account) => new Reader(account, urlOf, reading.signal));
  let wanted = MORE;
  const whileFew = async () => {
    while (producer.acknowledged >= wanted + MOST && !publishing.signal.aborted) await wait(20);
  };
  const published = Promise.all([
    producer.run(IN_FLIGHT, publishing.signal, whileFew),
    cluster.producer.run(BY_SQL_PER_SECOND, accountIds, publishing.signal),
    documents.run(publishing.signal),
    checkpoints && checkpointAlways(cluster, publishing.signal),
  ]);
  published.catch(() => undefined);
  const untilMoreAcknowledged = () => {
    wanted = producer.acknowledged + MORE;
    const isMore = () => producer.acknowledged >= wanted && documents.hasMore;
    return Promise.race([until(isMore, 60_000), published]);
  };
  const compare = async () => {
    await expectWholePages(cluster);
    await expectKept(cluster);
    for (const [n, { ids }] of readers.entries()) await expectFeed(cluster, accountIds[n]!, ids);
  };

  try {
    let lost = 0;
    for (let n = 0; n < cuts; n++) {
      await start();
      await untilMoreAcknowledged();
      await wait(chance.between(0, 400));
      const isWhole = n % 3 === 0;
      const seed = n % 2 === 0 ? chance.between(1, 1_000_000) : null;
      const files = await cutOnce(machine, isWhole, seed);
      lost += files;
      await compare().catch((cause: unknown) => {
        throw new Error(`after cut ${n + 1}: ${String(cause)}`, { cause });
      });
      await start();
      await documents.expectKept();
      tell(
        `cut ${n + 1}: ${isWhole ? "everything" : "the database"}${seed === null ? "" : ", torn"}, ` +
          `${files} files were not as they had been`,
      );
    }
    await untilMoreAcknowledged();
    publishing.abort();
    await published;
    const drainedMs = await cluster.drain(120_000);
    expectSafe(await cluster.check());
    const repeated = await producer.repeat(IN_FLIGHT);
    const verdict = await cluster.check();
    expectSafe(verdict);
    equal(verdict.succeeded, verdict.published);
    const stored = await documents.expectAll();

    const read = () => readers.reduce((sum, { ids }) => sum + ids.length, 0);
    await until(() => read() >= verdict.published, 60_000);
    await compare();
    for (const [n, { ids }] of readers.entries()) {
      const own = publications.filter(({ accountId }) => accountId === accountIds[n]);
      deepEqual(
        [...ids].sort(),
        own.map(({ deliveryId }) => deliveryId).sort(),
        "the feed is not what was published",
      );
    }
    return {
      cuts,
      "files changed by cuts": lost,
      ...countsOf(verdict),
      "committed without an answer": producer.found,
      "answers repeated": repeated,
      "events read": read(),
      "documents stored": stored,
      "drained ms": drainedMs,
    };
  } finally {
    publishing.abort();
    reading.abort();
    producer.close();
    documents.close();
    await Promise.allSettled([published, ...readers.map(({ done }) => done)]);
  }
}

/** Returns how many files are not as they were. The server runs again. */
async function cutOnce(
  { cluster, postgres, disk, objects }: Machine,
  isWhole: boolean,
  seed: number | null,
): Promise<number> {
  const ended = isWhole ? cluster.dispatchers.map((one) => one.kill()) : [];
  await Promise.all([...ended, postgres.end("kill")]);
  const files = await Promise.all([disk.cut(seed), ...(isWhole ? [objects.cut(seed)] : [])]);
  await postgres.startAgain();
  await cluster.pool.query("select from sealpost.settings").catch((cause: unknown) => {
    throw new Error("not even the schema is there after a cut", { cause });
  });
  return files.reduce((sum, count) => sum + count, 0);
}

/** A checkpoint writes all that has changed and syncs it last: most cuts come between the two. */
async function checkpointAlways({ pool }: Cluster, signal: AbortSignal): Promise<void> {
  while (!signal.aborted)
    await pool.query("checkpoint").then(
      () => wait(5),
      () => wait(20),
    );
}

/** Reads every page that there is; the server compares each with its checksum. */
async function expectWholePages({ pool }: Cluster): Promise<void> {
  await pool.query(
    `select pg_prewarm(oid::regclass) from pg_class
     where relkind in ('r', 'i', 'm', 't', 'S') and relpersistence = 'p'`,
  );
}

/** What was acknowledged is there, under the id that was told. */
async function expectKept({ pool, producer }: Cluster): Promise<void> {
  const acknowledged = producer.publications.filter((one) => one.acknowledgedAtMs !== null);
  const ids = acknowledged.map(({ deliveryId }) => deliveryId);
  const { rows } = await pool.query<{ lost: string[] }>(
    `select array(select unnest($1::uuid[]) except select id from sealpost.deliveries) as lost`,
    [ids],
  );
  deepEqual(rows[0]!.lost, [], "what was acknowledged is not there");
}

/** The feed begins with what was read of it, in that order; nothing has two positions. */
async function expectFeed({ pool }: Cluster, accountId: string, read: readonly string[]): Promise<void> {
  const known = [...read];
  const { rows } = await pool.query<{ ids: string[] }>(
    "select array_agg(delivery_id order by position) as ids from sealpost.feed where account_id = $1",
    [accountId],
  );
  const ids = rows[0]!.ids ?? [];
  deepEqual(ids.slice(0, known.length), known, "the feed is not what was read of it");
  equal(new Set(ids).size, ids.length, "an event has two positions");
}
