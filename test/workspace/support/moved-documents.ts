// Documents that are moved by dispatchers, which are killed, while others read them.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { createTestDatabase } from "../../support/database.ts";
import { startTestApi } from "../../support/sealpost-api.ts";
import { killRepeatedly, startProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";
import { documentsOf } from "./documents.ts";
import { endLeases, keysInRows, keysInStore, settle } from "./moving.ts";
import { openFileStore } from "./object-listing.ts";

const KILLS = 3;
/** Of making them, at a time. */
const MAKERS = 8;

/** Renames a space again and again, and kills the dispatchers that follow; the last ones may end their work. */
export async function moveWhileRead(documentCount: number, readerCount: number, withinMs: number) {
  await using resources = new AsyncDisposableStack();
  const database = await createTestDatabase();
  resources.defer(() => database.drop());
  const folder = await mkdtemp(join(tmpdir(), "sealpost-moved-"));
  resources.defer(() => rm(folder, { recursive: true }));
  const env = { STATE_DIR: folder, RATE_LIMIT_REQUESTS: "1000000" };
  const api = await startTestApi(database, env);
  resources.defer(() => api.close());
  const documents = documentsOf(api.ask);
  const { id: space_id } = await documents.newSpace("from here");
  const ids: unknown[] = [];
  const make = async (maker: number) => {
    for (let n = maker; n < documentCount; n += MAKERS) {
      const bytes = Buffer.from(`document ${n}`);
      ids[n] = (await documents.uploaded({ space_id, file_name: `${n}` }, bytes)).id;
    }
  };
  await Promise.all(Array.from({ length: MAKERS }, (_, maker) => make(maker)));

  let isOver = false;
  const failures: unknown[] = [];
  let downloads = 0;
  const read = async (reader: number) => {
    for (let n = reader; !isOver; n = (n + 7) % documentCount) {
      const { status, bytes } = await documents.download(ids[n]);
      if (status !== 200 || bytes.toString() !== `document ${n}`)
        failures.push([n, status, bytes.toString()]);
      downloads += 1;
    }
  };
  const readers = Array.from({ length: readerCount }, (_, reader) => read(reader));
  const countMoved = async (prefix: unknown) => {
    const { rows } = await database.pool.query<{ n: number }>(
      "select count(*)::integer as n from workspace.documents where space_id = $1 and starts_with(storage_key, $2)",
      [space_id, prefix],
    );
    return rows[0]!.n;
  };
  let prefix: unknown;
  const startMovers = async (kill: number) => {
    const { body: space } = await documents.renameSpace(space_id, `to there ${kill}`);
    prefix = space.storage_prefix;
    const dispatch = () => startProcess("dispatch", { DATABASE_URL: database.url, ...env });
    return await Promise.all([dispatch(), dispatch()]);
  };
  const untilMoved = (count: number) =>
    expect
      .poll(() => countMoved(prefix), { timeout: patience(withinMs), interval: 5 })
      .toBeGreaterThanOrEqual(count);
  await killRepeatedly({
    count: KILLS,
    start: startMovers,
    until: (kill) => untilMoved((documentCount * (kill + 1)) / (2 * KILLS)),
    between: () => endLeases(database.pool),
  });
  const last = await startMovers(KILLS);
  await untilMoved(documentCount);
  await Promise.all(last.map((one) => one.stop()));
  await endLeases(database.pool);
  isOver = true;
  await Promise.all(readers);
  const objects = await openFileStore(join(folder, "objects"));
  await settle(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  return { failures, downloads };
}
