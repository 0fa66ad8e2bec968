// What is deleted, and what was going on with it: links, runs, uploads and renames.
import { expect, test } from "vitest";
import { DELETED_AT_ONCE_MAX } from "../../src/workspace/model/bin.ts";
import { begin, untilSomebodyWaits } from "../support/installation.ts";
import type { Json } from "../support/sealpost-api.ts";
import { pageWorld } from "./page-world.ts";
import { api, database, documents, objects, runs, space, stepping, useRuns } from "./run-world.ts";
import { binOf } from "./support/bin.ts";
import { BYTES } from "./support/documents.ts";
import { endKeeping, keysInRows, keysInStore, moveOnce, removeAll, settle } from "./support/moving.ts";
import { chain, readFeeds, sequenceAll, stepAll } from "./support/runs.ts";

useRuns();
const bin = binOf((...asked) => api.ask(...asked));
const at = (place: string, id: unknown) => ({ path: `/v1/${place}/${id}` });

test.each(["page", "space"])(
  "the links of a %s are closed at once, and stay closed when it is restored",
  async (kind) => {
    const world = pageWorld(api);
    const { page, link } = await world.linked();
    const spaceId = (await api.ask("GET", `/v1/pages/${page}`)).body.space_id;
    const thing = kind === "page" ? at("pages", page) : at("spaces", spaceId);
    expect((await world.open(link)).status).toBe(200);
    expect((await bin.remove(thing)).status).toBe(200);
    const closed = await world.open(link);
    expect([closed.status, closed.text.includes("Text.")]).toEqual([410, false]);
    expect((await api.ask("GET", `/v1/page-links/${link.id}`)).status).toBe(404);
    expect((await api.ask("POST", `/v1/pages/${page}/links`, { body: { label: "New" } })).status).toBe(404);
    expect((await bin.restore(thing)).status).toBe(200);
    expect((await world.open(link)).status).toBe(410);
    expect(await world.linkOf(link.id)).toMatchObject({ status: "REVOKED", state: "revoked" });
    expect((await world.open(await world.newLink(page))).status).toBe(200);
  },
);

test("no link is made beside the deletion of its page", async () => {
  const world = pageWorld(api);
  const { page } = await world.published();
  const other = await begin(database.pool, `select from workspace.pages where id = '${page}' for update`);
  const deleting = bin.remove(at("pages", page));
  await untilSomebodyWaits(database.pool);
  const making = api.ask("POST", `/v1/pages/${page}/links`, { body: { label: "Late" } });
  await untilSomebodyWaits(database.pool, 2);
  await other.commit();
  expect([(await deleting).status, (await making).status]).toEqual([200, 404]);
});

test.each(["workflow", "space"])(
  "a run of a deleted %s goes on and publishes, and no other begins",
  async (kind) => {
    const { id: space_id } = await documents.newSpace("with runs");
    await documents.uploaded({ space_id });
    const waiting = chain({ kind: "external_analysis" }, { kind: "documents" }, { kind: "analyze" });
    const workflow = await runs.newWorkflow(space_id, waiting);
    const { id } = await runs.started(workflow, { webhook_url: "https://hooks.example.com/own" });
    await stepAll(stepping());
    const nodeRunId = (await runs.get(id)).node_runs.at(-1)!.id;
    const thing = kind === "workflow" ? at("workflows", workflow) : at("spaces", space_id);
    const { userId, key } = await api.newUser(api.account.accountId);
    await api.ask("PUT", `/v1/spaces/${space_id}/members/${userId}`, { body: { role: "VIEWER" } });
    await bin.remove(thing);
    const refused = await runs.start(workflow);
    expect([refused.status, refused.body.code]).toEqual([409, "workflow_deleted"]);
    expect((await runs.start(workflow, {}, { key })).status).toBe(403);
    expect((await runs.start(workflow, {}, { key: (await api.newAccount()).key })).status).toBe(404);
    expect((await api.ask("GET", `/v1/workflow-runs/${id}`)).status).toBe(kind === "workflow" ? 200 : 404);
    const body = { analysis: { id: `${id}:${nodeRunId}`, status: "succeeded" } };
    expect((await api.ask("POST", "/v1/analyses", { body })).status).toBe(202);
    await readFeeds(database.pool);
    await stepAll(stepping());
    await sequenceAll(database.pool);
    const { rows } = await database.pool.query(
      `select status, array(select sealpost.closed_url(account_id, delivery_id)) as closed
       from workspace.runs where id = $1`,
      [id],
    );
    expect(rows).toEqual([{ status: "SUCCEEDED", closed: [] }]);
    // Its members read what it has published when it is there again.
    const read = async (key: string) => (await api.ask("GET", `/v1/analyses/${id}`, { key })).status;
    const usersKey = api.account.key;
    expect([await read(api.account.ownKey), await read(usersKey)]).toEqual([
      200,
      kind === "workflow" ? 200 : 404,
    ]);
    await bin.restore(thing);
    expect(await read(usersKey)).toBe(200);
    expect((await runs.start(workflow)).status).toBe(202);
  },
);

test("runs pass over documents that are deleted, also those that they have met before", async () => {
  const { id: space_id } = await documents.newSpace("with runs");
  const [stays, goes] = [
    await documents.uploaded({ space_id, file_name: "stays" }),
    await documents.uploaded({ space_id, file_name: "goes" }),
  ];
  const before = await documents.uploaded({ space_id, file_name: "before" });
  await bin.remove(at("documents", before.id));
  const workflow = await runs.newWorkflow(
    space_id,
    chain({ kind: "documents" }, { kind: "wait", parameters: { for_seconds: 1 } }, { kind: "analyze" }),
  );
  const { id } = await runs.started(workflow);
  await stepAll(stepping());
  await bin.remove(at("documents", goes.id));
  await database.pool.query(
    `update workspace.node_runs set started_at = started_at - interval '1 hour', next_at = now()
     where run_id = $1 and status = 'WAITING'`,
    [id],
  );
  await stepAll(stepping());
  const items = await runs.items(id, "node-2");
  expect(items).toMatchObject([
    { document_id: stays.id, analysis: { bytes: BYTES.length } },
    { document_id: goes.id, error: { code: "document_not_found" } },
  ]);
});

test("a document that is deleted while its content comes keeps none of it", async () => {
  const document = await documents.created({ space_id: space.id, file_name: "deleted meanwhile" });
  const other = await begin(
    database.pool,
    `select from workspace.spaces where id = '${space.id}' for update`,
  );
  const deleting = bin.remove(at("documents", document.id));
  await untilSomebodyWaits(database.pool);
  const putting = documents.put(document.id);
  await untilSomebodyWaits(database.pool, 2);
  await other.commit();
  expect([(await deleting).status, (await putting).status]).toEqual([200, 404]);
  expect((await bin.restore(at("documents", document.id))).body).toEqual(document);
  await endKeeping(database.pool, false);
  await removeAll(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  expect((await documents.put(document.id)).status).toBe(200);
});

test.each(["the document", "its space"])(
  "a rename of %s that is in progress ends, and is made up for on restoring",
  async (what) => {
    const { id: space_id } = await documents.newSpace("before");
    const folder_id = await bin.newFolder(space_id, "folder");
    const { id } = await documents.uploaded({ space_id, folder_id, file_name: "before" });
    const rename = () =>
      what === "its space" ? documents.renameSpace(space_id, "after") : documents.rename(id, "after");
    for (const thing of [
      at("documents", id),
      at(`spaces/${space_id}/folders`, folder_id),
      at("spaces", space_id),
    ]) {
      await rename();
      await bin.remove(thing);
      while (await moveOnce(database.pool, objects));
      expect((await database.pool.query("select from workspace.moves")).rows).toEqual([]);
      await bin.restore(thing);
      await settle(database.pool, objects);
      const { storage_key } = (await documents.get(id)).body;
      expect(storage_key).toMatch(what === "its space" ? /^spaces\/after-/ : /\/after$/);
      expect((await documents.download(id)).bytes).toEqual(BYTES);
      await (what === "its space"
        ? documents.renameSpace(space_id, "before")
        : documents.rename(id, "before"));
      await settle(database.pool, objects);
    }
  },
);

test("an object is moved while its document is deleted for good: the document's alone is kept", async () => {
  const { id: space_id } = await documents.newSpace("before");
  const ids: unknown[] = [];
  for (let n = 0; n < 3; n++) ids.push((await documents.uploaded({ space_id, file_name: `${n}` })).id);
  await documents.renameSpace(space_id, "after");
  const copying = {
    ...objects,
    copy: async (from: string, to: string) => {
      await bin.removeForGood(at("documents", ids[1]));
      const { deleteAllGone } = await import("./support/bin.ts");
      await deleteAllGone(database.pool);
      await objects.copy(from, to);
    },
  };
  await moveOnce(database.pool, copying);
  await settle(database.pool, objects);
  expect((await database.pool.query("select from workspace.moves")).rows).toEqual([]);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  expect((await documents.download(ids[0])).bytes).toEqual(BYTES);
});

test("more than can be deleted at once is refused, and stays as it was", async () => {
  const { id: space_id } = await documents.newSpace("much");
  const parent = await bin.newFolder(space_id, "much");
  const { accountId, userId } = api.account;
  const fill = (count: number) =>
    database.pool.query(
      `insert into workspace.documents (account_id, space_id, folder_id, file_name, content_type, file_size,
         storage_key, live_content_type, uploaded_by)
       select $1, $2, $3, gen_random_uuid(), 'text/plain', 1, gen_random_uuid(), 'NONE', $4
       from generate_series(1, $5::integer)`,
      [accountId, space_id, parent, userId, count],
    );
  const folder = at(`spaces/${space_id}/folders`, parent);
  await fill(DELETED_AT_ONCE_MAX);
  const refused = await bin.remove(folder);
  expect([refused.status, refused.body.code]).toEqual([409, "too_much_to_delete"]);
  expect(await bin.listed(space_id)).toEqual([]);
  const count = async () => ((await api.ask("GET", `/v1/spaces/${space_id}`)).body as Json).document_count;
  expect(await count()).toBe(DELETED_AT_ONCE_MAX);
  await database.pool.query(
    "delete from workspace.documents where id = (select id from workspace.documents where folder_id = $1 limit 1)",
    [parent],
  );
  expect((await bin.remove(folder)).status).toBe(200);
  expect(await count()).toBe(0);
  expect((await bin.restore(folder)).status).toBe(200);
  expect(await count()).toBe(DELETED_AT_ONCE_MAX - 1);
});

test("a page with more links than can be closed at once is refused, and so is its space", async () => {
  const world = pageWorld(api);
  const { page, link } = await world.linked();
  const { space_id } = (await api.ask("GET", `/v1/pages/${page}`)).body;
  await database.pool.query(
    `insert into workspace.page_links (account_id, page_id, token_digest, label, created_by)
     select $1, $2, sha256(n::text::bytea), 'Many', $3 from generate_series(1, ${DELETED_AT_ONCE_MAX}) as n`,
    [api.account.accountId, page, api.account.userId],
  );
  for (const thing of [at("pages", page), at("spaces", space_id)]) {
    const refused = await bin.remove(thing);
    expect([refused.status, refused.body.code]).toEqual([409, "too_much_to_delete"]);
  }
  expect((await world.open(link)).status).toBe(200);
  await api.ask("PATCH", `/v1/page-links/${link.id}`, { body: { status: "REVOKED" } });
  expect((await bin.remove(at("pages", page))).status).toBe(200);
  const { rows } = await database.pool.query(
    "select from workspace.page_links where page_id = $1 and status = 'ACTIVE'",
    [page],
  );
  expect(rows).toEqual([]);
});
