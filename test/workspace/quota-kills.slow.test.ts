// Quotas while the processes that take uploads, and start runs, are killed.
import { randomBytes } from "node:crypto";
import { afterEach, beforeEach, expect, test } from "vitest";
import { runSealpost } from "../support/command.ts";
import { changeRows } from "../support/installation.ts";
import { ask as askAt } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import {
  account,
  api,
  database,
  documents,
  expectBeyond,
  expectExact,
  objects,
  quotaOf,
  runs,
  useStorage,
} from "./storage-world.ts";
import { documentsOf } from "./support/documents.ts";
import { settle } from "./support/moving.ts";
import { chain, runsOf } from "./support/runs.ts";

useStorage();

let serving: SealpostProcess[];
beforeEach(async () => {
  serving = await Promise.all([start(), start()]);
});
afterEach(async () => {
  await Promise.all(serving.map((serve) => serve.kill()));
});

const start = () =>
  startProcess("serve", {
    DATABASE_URL: database.url,
    STATE_DIR: api.stateDir,
    RATE_LIMIT_REQUESTS: "1000000",
  });

/** As an operator does. */
async function setQuota(set: string): Promise<void> {
  const args = ["account", "quota", "--account", account.accountId, "--set", set];
  expect(await runSealpost(args, { env: { DATABASE_URL: database.url } })).toMatchObject({ code: 0 });
}

type Answer = { readonly status: number; readonly body: Record<string, unknown> };

/**
 * Sends all of them at once to both processes, each until it is answered with something definite, and kills one process
 * each time that many more have been answered. Returns their last answers.
 */
async function sendWhileKilled(
  count: number,
  killEvery: number,
  send: (serve: SealpostProcess, n: number, idempotencyKey: string) => Promise<Answer>,
): Promise<readonly Answer[]> {
  let answered = 0;
  let kills = 0;
  let killing: Promise<void> = Promise.resolve();
  const killNext = async () => {
    const victim = kills++ % serving.length;
    await serving[victim]!.kill();
    serving[victim] = await start();
  };
  const sendOne = async (n: number): Promise<Answer> => {
    for (let tries = n; ; tries++) {
      const key = `sent ${n}`;
      const answer = await send(serving[tries % serving.length]!, n, key).catch(() => null);
      if (answer === null) {
        await killing;
        // As if the lease of what died with its process were over.
        const claim = { idempotency_key: key, status: null };
        await changeRows(database.pool, "idempotency_keys", claim, { claim_until: new Date(0) });
        continue;
      }
      // The machine is busy.
      if ([429, 503].includes(answer.status)) continue;
      if (++answered % killEvery === 0) killing = killing.then(killNext);
      return answer;
    }
  };
  const answers = await Promise.all(Array.from({ length: count }, (_, n) => sendOne(n)));
  await killing;
  expect(kills).toBeGreaterThan(2);
  return answers;
}

test(
  "50 uploads at once are as many as there is room for, however often processes are killed",
  async () => {
    const { id: space_id } = await documents.newSpace();
    const content = randomBytes(200_000);
    const ids: unknown[] = [];
    for (let n = 0; n < 50; n++) {
      ids.push((await documents.created({ space_id, file_name: `${n}`, file_size: content.length })).id);
    }
    const { used } = await quotaOf("bytes");
    const most = used + 20 * content.length + content.length - 1;
    await setQuota(`bytes=${most}`);
    const put = (serve: SealpostProcess, n: number, idempotencyKey: string) =>
      documentsOf((method, path, options) =>
        askAt(serve.url, method, path, { key: account.key, ...options }),
      ).put(ids[n], content, { idempotencyKey });
    const answers = await sendWhileKilled(50, 12, put);
    const taken = answers.filter(({ status }) => status === 200).length;
    // Of those that died some still have their room.
    expect(taken).toBeLessThanOrEqual(20);
    expect((await quotaOf("bytes")).used).toBeLessThanOrEqual(most);
    await expectExact();

    await settle(database.pool, objects);
    await expectExact();
    expect((await quotaOf("bytes")).used).toBe(used + taken * content.length);
    const left = [...answers.entries()].filter(([, { status }]) => status !== 200).map(([n]) => ids[n]);
    for (const id of left.slice(0, 20 - taken)) expect((await documents.put(id, content)).status).toBe(200);
    expectBeyond(await documents.put(left.at(-1), content), "bytes", most);
    await expectExact();
  },
  patience(120_000),
);

test(
  "60 runs at once are as many as may begin in a day, however often processes are killed",
  async () => {
    const workflow = await runs.newWorkflow((await documents.newSpace()).id, chain({ kind: "analyze" }));
    await setQuota("runs_per_day=25");
    const begin = (serve: SealpostProcess, _: number, idempotencyKey: string) =>
      runsOf((method, path, options) =>
        askAt(serve.url, method, path, { key: account.key, ...options }),
      ).start(workflow, {}, { idempotencyKey });
    const answers = await sendWhileKilled(60, 15, begin);
    const ids = answers.filter(({ status }) => status === 202).map(({ body }) => String(body.id));
    const found = await database.pool.query<{ id: string }>(
      "select id from workspace.runs where account_id = $1",
      [account.accountId],
    );
    expect(found.rows.map(({ id }) => id).sort()).toEqual(ids.sort());
    expect(ids).toHaveLength(25);
    expect(await quotaOf("runs_per_day")).toMatchObject({ used: 25, left: 0 });
    await expectExact();
  },
  patience(120_000),
);
