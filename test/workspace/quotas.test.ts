// What an operator lets one account have of the workspace: exactly that, however many ask at once.
import { randomBytes, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { begin, untilSomebodyWaits } from "../support/installation.ts";
import type { Asked, AskOptions } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import {
  account,
  ask,
  beginUpload,
  database,
  documents,
  expectBeyond,
  expectExact,
  objects,
  quotaOf,
  runs,
  setQuotas,
  stepping,
  usageOf,
  useStorage,
} from "./storage-world.ts";
import { binOf, deleteAllGone } from "./support/bin.ts";
import { endKeeping, removeAll } from "./support/moving.ts";
import { chain, stepAll } from "./support/runs.ts";

useStorage();

const bin = binOf((...asked) => ask(...asked));
const KIB = 1_024;

/** A busy machine answers some of many at once with 503, or 429; some of these were done all the same. */
async function whenPossible(send: (retried: AskOptions) => Promise<Asked>): Promise<Asked> {
  const idempotencyKey = randomUUID();
  for (;;) {
    const answer = await send({ idempotencyKey });
    if (![429, 503].includes(answer.status)) return answer;
  }
}

test("of 50 uploads at once exactly as many are taken as the account may have bytes for", async () => {
  const { id: space_id } = await documents.newSpace();
  const content = randomBytes(50_000);
  const made: unknown[] = [];
  for (let n = 0; n < 50; n++) {
    made.push((await documents.created({ space_id, file_name: `${n}`, file_size: content.length })).id);
  }
  const { used } = await quotaOf("bytes");
  expect(used).toBe(51 * KIB);
  const most = used + 20 * content.length + content.length - 1;
  await setQuotas({ bytes: most });
  const answers = await Promise.all(
    made.map((id) => whenPossible((retried) => documents.put(id, content, retried))),
  );
  const refused = answers.filter(({ status }) => status !== 200);
  for (const answer of refused) expectBeyond(answer, "bytes", most);
  expect(answers.length - refused.length).toBe(20);
  expect(await quotaOf("bytes")).toEqual({
    quota: "bytes",
    used: used + 20 * content.length,
    max: most,
    left: content.length - 1,
  });
  await expectExact();
});

test("what is added at once to documents, folders and pages is exact together", async () => {
  const { id: space_id } = await documents.newSpace();
  const most = 31 * KIB;
  await setQuotas({ bytes: most });
  const add = (n: number, retried: AskOptions) => {
    if (n % 3 === 0) return documents.create({ space_id, file_name: `${n}` }, retried);
    const [path, body] =
      n % 3 === 1
        ? [`/v1/spaces/${space_id}/folders`, { name: `${n}` }]
        : ["/v1/pages", { space_id, title: `${n}`, markdown: "" }];
    return ask("POST", path, { ...retried, body });
  };
  const answers = await Promise.all(
    Array.from({ length: 60 }, (_, n) => whenPossible((retried) => add(n, retried))),
  );
  const refused = answers.filter(({ status }) => status !== 201);
  for (const answer of refused) expectBeyond(answer, "bytes", most);
  expect(answers.length - refused.length).toBe(30);
  expect((await quotaOf("bytes")).used).toBe(most);
  await expectExact();
});

test.each([
  ["commit", 402],
  ["rollback", 201],
] as const)("who comes second waits for the %s of who came first, and is told %d", async (end, status) => {
  const [one, other] = [await documents.newSpace("one"), await documents.newSpace("other")];
  const { used } = await quotaOf("bytes");
  await setQuotas({ bytes: used + 2 * KIB - 1 });
  const first = await begin(
    database.pool,
    `insert into workspace.folders (account_id, space_id, name, created_by)
     values ('${account.accountId}', '${one.id}', 'first', '${account.userId}')`,
  );
  const second = documents.create({ space_id: other.id });
  await untilSomebodyWaits(database.pool);
  await first[end]();
  expect((await second).status).toBe(status);
  expect((await quotaOf("bytes")).used).toBe(used + KIB);
  await expectExact();
});

test("what is in the bin counts, and what is deleted for good no more", async () => {
  const { id: space_id } = await documents.newSpace();
  const content = randomBytes(10_000);
  const first = await documents.uploaded({ space_id, file_name: "first" }, content);
  await documents.uploaded({ space_id, file_name: "second" }, content);
  const { used } = await quotaOf("bytes");
  await setQuotas({ documents: 2, bytes: used });
  const path = `/v1/documents/${first.id}`;
  expect((await bin.remove({ path })).status).toBe(200);
  const again = () => documents.create({ space_id, file_name: "third", file_size: content.length });
  expectBeyond(await again(), "bytes", used);
  await setQuotas({ bytes: null });
  expectBeyond(await again(), "documents", 2);
  expect([await quotaOf("bytes"), await quotaOf("documents")]).toMatchObject([{ used }, { used: 2 }]);

  expect((await bin.removeForGood({ path })).status).toBe(200);
  await deleteAllGone(database.pool);
  expect(await quotaOf("documents")).toMatchObject({ used: 1, left: 1 });
  expect(await quotaOf("bytes")).toMatchObject({ used: used - KIB - content.length, left: null });
  await setQuotas({ bytes: used });
  const third = await again();
  expect(third.status).toBe(201);
  expect((await documents.put(third.body.id, content)).status).toBe(200);
  await expectExact();
});

test("one space is too large, and others are not", async () => {
  const { id: space_id } = await documents.newSpace("one");
  const { id: other } = await documents.newSpace("other");
  const content = randomBytes(10_000);
  const most = 2 * (KIB + content.length) + KIB;
  await setQuotas({ space_bytes: most, space_documents: 3 });
  for (const file_name of ["first", "second"]) await documents.uploaded({ space_id, file_name }, content);
  const third = await documents.created({ space_id, file_name: "third", file_size: content.length });
  expectBeyond(await documents.put(third.id, content), "space_bytes", most);
  expectBeyond(
    await ask("POST", `/v1/spaces/${space_id}/folders`, { body: { name: "folder" } }),
    "space_bytes",
    most,
  );
  await setQuotas({ space_bytes: null });
  expect((await documents.put(third.id, content)).status).toBe(200);
  expectBeyond(await documents.create({ space_id, file_name: "fourth" }), "space_documents", 3);
  await documents.uploaded({ space_id: other }, content);
  expect([await quotaOf("space_bytes"), await quotaOf("space_documents")]).toMatchObject([
    { used: 3 * (KIB + content.length), max: null },
    { used: 3, max: 3, left: 0 },
  ]);
  await expectExact();

  // A space that is gone leaves no row.
  const rows = async () => {
    const where = "where account_id = $1 and holder_id = $2";
    const text = `select from workspace.storage ${where}`;
    return (await database.pool.query(text, [account.accountId, space_id])).rowCount;
  };
  expect(await rows()).toBe(1);
  expect((await bin.removeForGood({ path: `/v1/spaces/${space_id}` })).status).toBe(200);
  await deleteAllGone(database.pool);
  await endKeeping(database.pool, true);
  await removeAll(database.pool, objects);
  expect(await rows()).toBe(0);
  expect(await quotaOf("space_documents")).toMatchObject({ used: 1 });
  await expectExact();
});

test("an upload has its room in its space as soon as it begins, and gives it back when it is cut", async () => {
  const { id: space_id } = await documents.newSpace();
  const size = 100_000;
  const { id } = await documents.created({ space_id, file_size: size });
  const { id: other } = await documents.created({ space_id, file_name: "Other.txt", file_size: size });
  const { used } = await quotaOf("space_bytes");
  await setQuotas({ space_bytes: used + size });
  const cut = new AbortController();
  const uploading = beginUpload(id, size, cut.signal);
  const now = async () => (await quotaOf("space_bytes")).used;
  await expect.poll(now, { timeout: patience(5_000) }).toBe(used + size);
  expectBeyond(await documents.put(other, Buffer.alloc(size)), "space_bytes", used + size);
  cut.abort();
  expect(await uploading).toBeNull();
  await expect.poll(now, { timeout: patience(5_000) }).toBe(used);
  expect((await documents.put(id, Buffer.alloc(size))).status).toBe(200);
  await expectExact();
});

const newWorkflow = async () =>
  await runs.newWorkflow((await documents.newSpace()).id, chain({ kind: "analyze" }));

test("of 30 runs that are asked for at once as many begin as the account may have in a day", async () => {
  const workflow = await newWorkflow();
  await setQuotas({ runs_per_day: 12 });
  const many = Array.from({ length: 30 }, () => whenPossible((retried) => runs.start(workflow, {}, retried)));
  const answers = await Promise.all(many);
  const refused = answers.filter(({ status }) => status !== 202);
  for (const answer of refused) expectBeyond(answer, "runs_per_day", 12);
  expect(refused).toHaveLength(18);

  // Those that have gone have begun all the same.
  await stepAll(stepping());
  await database.pool.query("delete from workspace.runs where account_id = $1", [account.accountId]);
  expect(await quotaOf("runs_per_day")).toEqual({ quota: "runs_per_day", used: 12, max: 12, left: 0 });
  expectBeyond(await runs.start(workflow), "runs_per_day", 12);
  await database.pool.query("update workspace.storage set run_day = run_day - 1 where account_id = $1", [
    account.accountId,
  ]);
  expect(await quotaOf("runs_per_day")).toMatchObject({ used: 0, left: 12 });
  expect((await runs.start(workflow)).status).toBe(202);
  expect(await quotaOf("runs_per_day")).toMatchObject({ used: 1 });
  await expectExact();
});

test("no run begins while ended ones keep more than they may, and none is kept from its end", async () => {
  const workflow = await newWorkflow();
  const input = { text: randomBytes(5_000).toString("hex") };
  await setQuotas({ ended_run_bytes: 40_000 });
  const begun = [await runs.started(workflow, { input }), await runs.started(workflow, { input })];
  expect(await quotaOf("ended_run_bytes")).toMatchObject({ used: 0 });
  await stepAll(stepping());
  for (const { id } of begun) expect((await runs.get(id)).status).toBe("SUCCEEDED");
  const { used } = await quotaOf("ended_run_bytes");
  expect(used).toBeGreaterThan(40_000);
  expect((await usageOf("runs")).bytes).toBe(used);
  expectBeyond(await runs.start(workflow, { input }), "ended_run_bytes", 40_000);
  await database.pool.query("delete from workspace.runs where id = $1", [begun[0]!.id]);
  expect((await quotaOf("ended_run_bytes")).used).toBeLessThan(40_000);
  const third = await runs.started(workflow, { input });
  expect((await runs.cancel(third.id)).status).toBe(200);
  expect((await quotaOf("ended_run_bytes")).used).toBe((await usageOf("runs")).bytes);
  await expectExact();
});

test("a run for which there is no room goes no further, and says for what", async () => {
  const workflow = await newWorkflow();
  const { id } = await runs.started(workflow, { input: { text: randomBytes(5_000).toString("hex") } });
  const { used } = await quotaOf("bytes");
  await setQuotas({ bytes: used + 5_000 });
  await stepAll(stepping());
  const run = await runs.get(id);
  expect(run).toMatchObject({ status: "FAILED", error_code: "storage_full" });
  expect(run.error_message).toContain(
    `may have ${used + 5_000} bytes of documents, pages, workflows and runs`,
  );
  await expectExact();
});

test("what an account has already is not taken from it, and can be read, renamed and deleted", async () => {
  const { id: space_id } = await documents.newSpace();
  const { id } = await documents.uploaded({ space_id });
  await setQuotas({ bytes: 0, documents: 0, space_bytes: 0, space_documents: 0, runs_per_day: 0 });
  expectBeyond(await documents.create({ space_id, file_name: "another" }), "bytes", 0);
  expect((await documents.download(id)).status).toBe(200);
  expect((await documents.rename(id, "renamed")).status).toBe(200);
  expect((await bin.remove({ path: `/v1/documents/${id}` })).status).toBe(200);
  expect((await bin.restore({ path: `/v1/documents/${id}` })).status).toBe(200);
  expect((await quotaOf("documents")).used).toBe(1);
  await expectExact();
});
