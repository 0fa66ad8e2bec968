// Accounts whose steps are long, as with large documents, leave another one's steps a place, and are few at a time.
import { setTimeout } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import type { Json, TestAccount } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import { api, database, documents, objects, runs, useRuns } from "./run-world.ts";
import { chain, startTestRunner, stepAll } from "./support/runs.ts";

const TRIES = 20;
/** Of all greedy accounts: more than they end in a test. */
const RUNS_AT_ONCE = 80;
const STEPS = [{ kind: "analyze" }, { kind: "analyze" }, { kind: "analyze" }] as const;

useRuns();
afterEach(() => database.pool.query("delete from workspace.runs"));

/** Starts a workflow that analyzes a document three times, and returns how it is started again. */
async function newAnalysis({ key }: TestAccount, content_type: string) {
  const { id: space_id } = await documents.newSpace("documents", { key });
  const { id } = await documents.uploaded({ space_id, content_type }, undefined, { key });
  const workflow = await runs.newWorkflow(space_id, chain(...STEPS), { key });
  return async () => (await runs.started(workflow, { input: { document_id: id } }, { key })).id;
}

/** The first document of each greedy account is slow, and all others are read until the test ends. */
function holdReads(greedyKeys: ReadonlySet<string>, slowMs: number) {
  const { promise: over, resolve: release } = Promise.withResolvers<void>();
  const slow = new Set<string>();
  let held = 0;
  const store: ObjectStore = {
    ...objects,
    get: async (key, range, signal) => {
      if (greedyKeys.has(key) && !slow.has(key)) {
        slow.add(key);
        await setTimeout(slowMs);
      } else if (greedyKeys.has(key)) {
        held++;
        await over;
      }
      return await objects.get(key, range, signal);
    },
  };
  return { store, release, found: () => ({ slow: slow.size, held }) };
}

test.each([1, 2, 20])(
  "beside %i accounts that hold what they get, another one's runs go on",
  async (count) => {
    for (let n = 0; n < count; n++) {
      const start = await newAnalysis(await api.newAccount(), "application/octet-stream");
      for (let each = 0; each < 4; each++) await start();
    }
    const { rows } = await database.pool.query<{ key: string }>(
      `select storage_key as key from workspace.documents where content_type = 'application/octet-stream'
     and account_id in (select account_id from workspace.runs)`,
    );
    expect(rows).toHaveLength(count);
    const victim = await api.newAccount();
    const startVictims = await newAnalysis(victim, "text/plain");
    const heavyStepMs = patience(300);
    const reads = holdReads(new Set(rows.map(({ key }) => key)), heavyStepMs + 50);
    const runner = startTestRunner(database.pool, reads.store, { heavyStepMs });
    try {
      // Each is known, and whoever came back has all places but one.
      const timeout = (count + 10) * 2 * heavyStepMs;
      await expect.poll(reads.found, { timeout, interval: 20 }).toEqual({ slow: count, held: 2 });
      for (let tries = 0; tries < TRIES; tries++) {
        const id = await startVictims();
        const read = () =>
          database.pool
            .query("select status from workspace.runs where id = $1", [id])
            .then((found) => found.rows[0].status);
        await expect.poll(read, { timeout: patience(10_000), interval: 10 }).toBe("SUCCEEDED");
      }
      expect(reads.found()).toEqual({ slow: count, held: 2 });
    } finally {
      reads.release();
      await runner.stop();
    }
    expect(runner.errors).toEqual([]);
  },
);

/** Accounts whose steps take `slowMs` each, none of them so long that it makes its account heavy. */
async function startGreedy(count: number, slowMs: number) {
  for (let n = 0; n < count; n++) {
    const start = await newAnalysis(await api.newAccount(), "application/octet-stream");
    for (let each = 0; each < RUNS_AT_ONCE / count; each++) await start();
  }
  const { rows } = await database.pool.query<{ key: string }>(
    `select storage_key as key from workspace.documents where content_type = 'application/octet-stream'
     and account_id in (select account_id from workspace.runs)`,
  );
  const keys = new Set(rows.map(({ key }) => key));
  const known = new Set<string>();
  let begun = 0;
  const get: ObjectStore["get"] = (key, ...asked) => {
    if (!keys.has(key)) return objects.get(key, ...asked);
    begun++;
    return setTimeout(slowMs).then(() => {
      known.add(key);
      return objects.get(key, ...asked);
    });
  };
  const startVictims = await newAnalysis(await api.newAccount(), "text/plain");
  const runner = startTestRunner(database.pool, { ...objects, get }, { heavyStepMs: 10 * slowMs });
  /** Returns how many of the greedy's steps began while the other one's run took its own. */
  const tryVictims = async (timeout: number) => {
    const before = begun;
    const id = await startVictims();
    const read = () => database.pool.query("select status from workspace.runs where id = $1", [id]);
    const poll = expect.poll(async () => (await read()).rows[0].status, { timeout, interval: 10 });
    await poll.toBe("SUCCEEDED");
    return begun - before;
  };
  return { runner, tryVictims, known };
}

test.each([2, 20])(
  "beside %i accounts with half-second steps, another one does not wait for each",
  async (count) => {
    const slowMs = patience(500);
    const { runner, tryVictims, known } = await startGreedy(count, slowMs);
    try {
      await expect.poll(() => known.size, { timeout: (count + 10) * 2 * slowMs, interval: 20 }).toBe(count);
      const waits: number[] = [];
      for (let tries = 0; tries < TRIES; tries++) waits.push(await tryVictims(patience(30_000)));
      // Two places' worth, and what began with it; of the slowest, who knows.
      expect(waits.sort((a, b) => a - b).at(-2)).toBeLessThanOrEqual(6);
    } finally {
      await runner.stop();
    }
  },
);

test("while others rest from one account's steps beside webhooks, another one's are taken", async () => {
  const { runner, tryVictims, known } = await startGreedy(1, 500);
  try {
    // Only then: the short steps before it would rest for as long as they take.
    await expect.poll(() => known.size, { timeout: patience(10_000), interval: 20 }).toBe(1);
    runner.giveWayTo(450);
    for (let tries = 0; tries < 4; tries++) await tryVictims(patience(8_000));
  } finally {
    await runner.stop();
  }
});

test("beside accounts with short steps all the time, one with long ones has its turn", async () => {
  const heavyId = await (await newAnalysis(await api.newAccount(), "application/octet-stream"))();
  const { rows } = await database.pool.query<{ key: string }>(
    `select storage_key as key from workspace.documents
     where account_id = (select account_id from workspace.runs where id = $1)`,
    [heavyId],
  );
  for (let n = 0; n < 4; n++) {
    const start = await newAnalysis(await api.newAccount(), "text/plain");
    for (let each = 0; each < 10; each++) await start();
  }
  const heavyStepMs = patience(300);
  let reads = 0;
  const get: ObjectStore["get"] = (key, ...asked) => {
    const isHeavy = key === rows[0]!.key;
    const slowMs = isHeavy ? heavyStepMs + 50 : (heavyStepMs / 6) * (1 + (reads++ % 7) / 4);
    return setTimeout(slowMs).then(() => objects.get(key, ...asked));
  };
  const runner = startTestRunner(database.pool, { ...objects, get }, { heavyStepMs });
  const unfinished = async (which: string) => {
    const text = `select from workspace.runs where completed_at is null and ${which}`;
    return (await database.pool.query(text, [heavyId])).rowCount;
  };
  try {
    await expect.poll(() => unfinished("id = $1"), { timeout: patience(30_000), interval: 20 }).toBe(0);
    expect(await unfinished("id <> $1"), "and they are not done").toBeGreaterThan(5);
  } finally {
    await runner.stop();
  }
});

test.each([
  ["small", "application/octet-stream", 1_000, 4],
  ["large", "application/octet-stream", 9 * 1_024 ** 2, 1],
  ["texts of a megabyte", "text/plain", 1_024 ** 2, 2],
])("documents that are %s are read so many at a time", async (_, content_type, bytes, atOnce) => {
  const space = await documents.newSpace();
  const content = Buffer.alloc(bytes, "word ");
  for (let n = 0; n < 4; n++)
    await documents.uploaded({ space_id: space.id, file_name: `${n}`, content_type }, content);
  const workflow = await runs.newWorkflow(space.id, chain({ kind: "documents" }, { kind: "analyze" }));
  const { id } = await runs.started(workflow);
  let open = 0;
  let most = 0;
  const get: ObjectStore["get"] = async (...asked) => {
    most = Math.max(most, ++open);
    const found = await objects.get(...asked);
    found.body.once("close", () => open--);
    return found;
  };
  await stepAll({ pool: database.pool, objects: { ...objects, get } });
  expect((await runs.items(id, "node-1")).map(({ analysis }) => (analysis as Json).bytes)).toEqual(
    Array(4).fill(bytes),
  );
  expect(most).toBe(atOnce);
});
