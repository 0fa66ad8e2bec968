// Deleting and restoring: by whom, from where, and what else sees of it.
import { beforeEach, describe, expect, test } from "vitest";
import type { AskOptions, Json } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";
import { workspaceTests } from "./area-tests.ts";
import { account, api, ask, database, documents, useStorage } from "./storage-world.ts";
import { binOf, deleteAllGone, endBin, KINDS, type Thing } from "./support/bin.ts";
import { BYTES } from "./support/documents.ts";

useStorage();
const bin = binOf((...asked) => ask(...asked));

let space: Json;
beforeEach(async () => {
  space = await documents.newSpace("things");
});

const ROLES = ["ADMIN", "EDITOR", "VIEWER", "nobody", "stranger"] as const;
type Role = (typeof ROLES)[number];
const STATES = ["there", "in the bin", "gone", "in a space in the bin"] as const;
const OPERATIONS = {
  delete: (thing: Thing, by: AskOptions) => bin.remove(thing, by),
  "delete for good": (thing: Thing, by: AskOptions) => bin.removeForGood(thing, by),
  restore: (thing: Thing, by: AskOptions) => bin.restore(thing, by),
};
type Operation = keyof typeof OPERATIONS;

/** Who may not delete is told so of what exists to the operation. */
function statusOf(state: (typeof STATES)[number], operation: Operation, role: Role): number {
  const finds = { there: ["delete", "delete for good"], "in the bin": ["delete for good", "restore"] };
  const isFound = (finds[state as keyof typeof finds] ?? []).includes(operation);
  if (!isFound || role === "nobody" || role === "stranger") return 404;
  return role === "ADMIN" ? 200 : 403;
}

async function newPeople(space_id: unknown): Promise<Readonly<Record<Role, AskOptions>>> {
  const people: Record<string, AskOptions> = { ADMIN: {}, stranger: { key: (await api.newAccount()).key } };
  for (const role of ["EDITOR", "VIEWER", "nobody"]) {
    const { userId, key } = await api.newUser(account.accountId);
    people[role] = { key };
    if (role === "nobody") continue;
    const member = `/v1/spaces/${space_id}/members/${userId}`;
    expect((await ask("PUT", member, { body: { role } })).status).toBe(200);
  }
  return people as Record<Role, AskOptions>;
}

describe.each(KINDS)("a %s", (kind) => {
  test.each(STATES)("%s is deleted and restored by those who may", async (state) => {
    if (kind === "space" && state === "in a space in the bin") return;
    const made = async () => {
      const { id } = kind === "space" ? await documents.newSpace("things") : space;
      return await bin.newThing(kind, id, `${Math.random()}`);
    };
    const things = Object.fromEntries(
      await Promise.all(Object.keys(OPERATIONS).map(async (name) => [name, await made()] as const)),
    );
    const people: Record<string, Awaited<ReturnType<typeof newPeople>>> = {};
    const ofSpace = kind === "space" ? null : await newPeople(space.id);
    for (const [name, { id }] of Object.entries(things)) people[name] = ofSpace ?? (await newPeople(id));
    if (state === "in the bin") for (const thing of Object.values(things)) await bin.remove(thing);
    if (state === "gone") for (const thing of Object.values(things)) await bin.removeForGood(thing);
    if (state === "in a space in the bin") {
      for (const thing of Object.values(things).slice(1)) await bin.remove(thing);
      expect((await bin.remove({ path: `/v1/spaces/${space.id}` })).status).toBe(200);
    }
    for (const [name, operation] of Object.entries(OPERATIONS)) {
      // Whoever may, last.
      for (const role of ROLES.toReversed()) {
        const { status } = await operation(things[name]!, people[name]![role]);
        expect([name, role, status]).toEqual([name, role, statusOf(state, name as Operation, role)]);
      }
    }
    await deleteAllGone(database.pool);
    expect(await bin.restore(things["delete for good"]!)).toMatchObject({ status: 404 });
  });

  test("is in the bin with its name, who deleted it and when, and comes back as it was", async () => {
    const thing = await bin.newThing(kind, space.id, "Thing");
    const getting = async () => {
      if (kind !== "folder") return await ask("GET", thing.path);
      const { body } = await ask("GET", `/v1/spaces/${space.id}/folders`);
      const [only] = body.items as Json[];
      return { status: only === undefined ? 404 : 200, body: only };
    };
    const before = await getting();
    const { status, body } = await bin.remove(thing);
    const item = {
      ...{ kind, id: thing.id, space_id: space.id, name: thing.name },
      deleted_by: { id: account.userId, name: expect.any(String) },
      ...{ deleted_at: expect.any(String), gone_at: expect.any(String) },
    };
    expect([status, body]).toEqual([200, item]);
    expect(Date.parse(String(body.gone_at)) - Date.parse(String(body.deleted_at))).toBe(30 * 86_400_000);
    expect((await getting()).status).toBe(404);
    expect(await bin.listed(space.id)).toEqual([body]);
    const restored = await bin.restore(thing);
    expect(restored.status).toBe(200);
    const after = await getting();
    expect([after.status, after.body]).toEqual([200, before.body]);
    expect(before.body).toMatchObject(restored.body);
    expect(await bin.listed(space.id)).toEqual([]);
    expect((await bin.restore(thing)).status).toBe(404);
  });

  test("a repeat with the same Idempotency-Key has the same answer, and does nothing", async () => {
    const thing = await bin.newThing(kind, space.id, "Thing");
    for (const change of [bin.remove, bin.restore, bin.remove]) {
      const idempotencyKey = crypto.randomUUID();
      const first = await change(thing, { idempotencyKey });
      const again = await change(thing, { idempotencyKey });
      expect([first.status, again.status, again.body]).toEqual([200, 200, first.body]);
      expect(again.headers.get("idempotent-replayed")).toBe("true");
    }
  });

  test("of 5 that delete or restore it at once, one does", async () => {
    const thing = await bin.newThing(kind, space.id, "Thing");
    for (const change of [bin.remove, bin.restore, bin.removeForGood]) {
      const answers = await Promise.all(Array.from({ length: 5 }, () => change(thing)));
      // A space that is in the bin and is deleted for good was both at a moment.
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404, 404, 404]);
    }
  });

  test("is gone when its time is over, and nothing brings it back", async () => {
    const thing = await bin.newThing(kind, space.id, "Thing");
    await bin.remove(thing);
    await endBin(database.pool);
    expect((await bin.restore(thing)).status).toBe(404);
    expect((await bin.removeForGood(thing)).status).toBe(404);
    expect(await bin.listed(space.id)).toEqual(kind === "space" ? 404 : []);
    await deleteAllGone(database.pool);
    const { rows } = await database.pool.query("select from workspace.bin where account_id = $1", [
      account.accountId,
    ]);
    expect(rows).toEqual([]);
    expect((await ask("GET", thing.path)).status).toBe(kind === "folder" ? 405 : 404);
  });
});

/** What finds things that are in the bin. */
const OF_BIN = /^(?:\w+s\.(?:delete|restore)|spaces\.bin\.list|workflows\.runs\.create)$/;

test.each(KINDS)("to every operation that names a %s, one in the bin is as none", async (kind) => {
  const things = await workspaceTests.makeThings(api, account);
  const fill = (path: string, ids: typeof things) => path.replaceAll(/\{(\w+)\}/g, (_, name) => ids[name]!);
  const path = fill(
    kind === "folder" ? "/v1/spaces/{space_id}/folders/{folder_id}" : `/v1/${kind}s/{${kind}_id}`,
    things,
  );
  expect((await bin.remove({ path })).status).toBe(200);
  // Everything that is found by way of its space is gone with that.
  const names = kind === "space" ? Object.keys(things).map((name) => `{${name}}`) : [`{${kind}_id}`];
  const found = declaredOperations().filter(
    ({ key, path, needsUser }) => needsUser && !OF_BIN.test(key) && names.some((name) => path.includes(name)),
  );
  expect(found.length).toBeGreaterThan({ space: 20, folder: -1, document: 3, page: 6, workflow: 3 }[kind]);
  for (const { key, method, path, work } of found) {
    const sent = work.kind === "upload" ? { content: BYTES } : { body: workspaceTests.bodies[key] };
    const { status } = await ask(method, fill(path, things), method === "GET" ? {} : sent);
    expect([key, status]).toEqual([key, 404]);
  }
});

test("who may see the bin are the space's members, while it can be restored", async () => {
  const people = await newPeople(space.id);
  const asked = async () =>
    await Promise.all(
      ROLES.map(async (role) => (await ask("GET", `/v1/spaces/${space.id}/bin`, people[role])).status),
    );
  const [seen, unseen] = [
    [200, 200, 200, 404, 404],
    [404, 404, 404, 404, 404],
  ];
  expect(await asked()).toEqual(seen);
  await bin.remove({ path: `/v1/spaces/${space.id}` });
  expect(await asked()).toEqual(seen);
  await bin.removeForGood({ path: `/v1/spaces/${space.id}` });
  expect(await asked()).toEqual(unseen);
});

test("deleted spaces are listed apart", async () => {
  const names = async (query: string) =>
    (await ask("GET", `/v1/spaces${query}`)).body as { items: Json[]; total: number; next_cursor: null };
  const { id } = await documents.newSpace("another");
  await bin.remove({ path: `/v1/spaces/${id}` });
  expect(await names("")).toMatchObject({ items: [{ id: space.id }], total: 1 });
  expect(await names("?deleted=true")).toMatchObject({ items: [{ id, name: "another" }], total: 1 });
  await bin.removeForGood({ path: `/v1/spaces/${id}` });
  expect(await names("?deleted=true")).toMatchObject({ items: [], total: 0 });
});

test("the bin is listed in pages, newest first", async () => {
  const things: Thing[] = [];
  for (const kind of ["folder", "document", "page", "workflow"] as const) {
    things.push(await bin.newThing(kind, space.id, kind));
    await bin.remove(things.at(-1)!);
  }
  const found: unknown[] = [];
  for (let query = "?limit=3"; ; ) {
    const { body } = await ask("GET", `/v1/spaces/${space.id}/bin${query}`);
    expect(body.total).toBe(4);
    found.push(...(body.items as Json[]).map(({ id }) => id));
    if (body.next_cursor === null) break;
    query = `?limit=3&cursor=${body.next_cursor}`;
  }
  expect(found).toEqual(things.map(({ id }) => id).toReversed());
});

describe("names", () => {
  test("a document with a wrong size is removed, and its name is free at once", async () => {
    const wrong = await documents.created({ space_id: space.id, file_size: 1 });
    expect((await documents.create({ space_id: space.id })).body.code).toBe("document_name_taken");
    const thing = { path: `/v1/documents/${wrong.id}` };
    await bin.remove(thing);
    const { id } = await documents.uploaded({ space_id: space.id });
    const taken = await bin.restore(thing);
    expect([taken.status, taken.body.code]).toEqual([409, "document_name_taken"]);
    await documents.rename(id, "Other.txt");
    expect((await bin.restore(thing)).status).toBe(200);
    expect((await documents.get(wrong.id)).body).toEqual(wrong);
  });

  test("a folder's name is free, and taken when it is restored", async () => {
    const first = await bin.newThing("folder", space.id, "2026");
    await bin.remove(first);
    const second = await bin.newThing("folder", space.id, "2026");
    const taken = await bin.restore(first);
    expect([taken.status, taken.body.code]).toEqual([409, "folder_name_taken"]);
    await bin.removeForGood(second);
    expect((await bin.restore(first)).status).toBe(200);
  });
});

describe("a folder", () => {
  async function filled() {
    const top = await bin.newFolder(space.id, "top");
    const inner = await bin.newFolder(space.id, "inner", top);
    const inTop = await documents.uploaded({ space_id: space.id, folder_id: top, file_name: "in top" });
    const inInner = await documents.uploaded({ space_id: space.id, folder_id: inner, file_name: "in inner" });
    const path = (id: string) => ({ path: `/v1/spaces/${space.id}/folders/${id}` });
    const count = async () => (await ask("GET", `/v1/spaces/${space.id}`)).body.document_count;
    return { top, inner, inTop, inInner, path, count };
  }

  test("takes along what is in it, and brings back just that", async () => {
    const { top, inner, inTop, inInner, path, count } = await filled();
    const before = await documents.uploaded({ space_id: space.id, folder_id: inner, file_name: "before" });
    await bin.remove({ path: `/v1/documents/${before.id}` });
    expect(await count()).toBe(2);
    await bin.remove(path(top));
    expect(await count()).toBe(0);
    for (const { id } of [inTop, inInner]) {
      for (const asked of [
        documents.get(id),
        documents.download(id),
        documents.rename(id, "x"),
        documents.put(id),
      ]) {
        expect((await asked).status).toBe(404);
      }
      expect((await bin.restore({ path: `/v1/documents/${id}` })).status).toBe(404);
    }
    expect((await ask("GET", `/v1/documents?space_id=${space.id}`)).body).toMatchObject({
      items: [],
      total: 0,
    });
    expect((await ask("GET", `/v1/documents?space_id=${space.id}&folder_id=${inner}`)).status).toBe(404);
    expect((await documents.create({ space_id: space.id, folder_id: top })).status).toBe(404);
    expect(await bin.listed(space.id)).toMatchObject([{ id: top }, { id: before.id }]);
    expect((await bin.restore(path(top))).status).toBe(200);
    expect(await count()).toBe(2);
    for (const document of [inTop, inInner]) {
      expect((await documents.get(document.id)).body).toEqual(document);
      expect((await documents.download(document.id)).bytes).toEqual(BYTES);
    }
    expect((await documents.get(before.id)).status).toBe(404);
    expect((await bin.restore({ path: `/v1/documents/${before.id}` })).body).toEqual(before);
  });

  test("that is not there any more gives what was in it to the top of its space", async () => {
    const { top, inner, inTop, inInner, path } = await filled();
    await bin.remove({ path: `/v1/documents/${inTop.id}` });
    await bin.remove({ path: `/v1/documents/${inInner.id}` });
    await bin.remove(path(inner));
    await bin.remove(path(top));
    const document = await bin.restore({ path: `/v1/documents/${inTop.id}` });
    expect([document.status, document.body.folder_id]).toEqual([200, null]);
    await bin.removeForGood(path(top));
    await deleteAllGone(database.pool);
    const folder = await bin.restore(path(inner));
    expect([folder.status, folder.body.parent_id]).toEqual([200, null]);
    expect((await bin.restore({ path: `/v1/documents/${inInner.id}` })).body.folder_id).toBe(inner);
  });

  test("of another space is not deleted or restored by this one's path", async () => {
    const { top } = await filled();
    const other = await documents.newSpace("other");
    const elsewhere = { path: `/v1/spaces/${other.id}/folders/${top}` };
    expect((await bin.remove(elsewhere)).status).toBe(404);
    await bin.remove({ path: `/v1/spaces/${space.id}/folders/${top}` });
    expect((await bin.restore(elsewhere)).status).toBe(404);
    expect((await bin.removeForGood(elsewhere)).status).toBe(404);
  });
});
