// Workflows that are switched off, archived or in the bin, and their versions: by whom, from where, and what is left.
import { describe, expect, test } from "vitest";
import type { Asked, AskOptions, Json } from "../support/sealpost-api.ts";
import { newUser, setRole } from "./membership-world.ts";
import { api, documents, runs, space, useRuns } from "./run-world.ts";
import { binOf } from "./support/bin.ts";
import { chain } from "./support/runs.ts";
import { workflowsOf } from "./support/workflows.ts";

useRuns();
const bin = binOf((...asked) => api.ask(...asked));
const workflows = workflowsOf((...asked) => api.ask(...asked));

const at = (id: unknown, what: string) => `/v1/workflows/${id}/${what}`;
const post = (id: unknown, what: string, options: AskOptions = {}) => api.ask("POST", at(id, what), options);
const versionsOf = async (id: unknown, query = "") => (await api.ask("GET", at(id, `versions${query}`))).body;
const codeOf = ({ status, body }: Asked) => [status, (body as Json).code ?? null];

const [FIRST, SECOND] = [chain({ kind: "analyze" }), chain({ kind: "documents" }, { kind: "analyze" })];

/** With two versions, and a draft beside them. */
async function withVersions(spaceId: unknown = space.id): Promise<string> {
  const { id } = await workflows.published(spaceId, FIRST);
  await workflows.save(id, 2, SECOND);
  expect((await workflows.publish(id, { change_note: "Files" })).status).toBe(200);
  await workflows.save(id, 3, chain());
  return String(id);
}

describe("the versions of a workflow", () => {
  test("are listed in pages, newest first, and told one by one with their definition", async () => {
    const id = await withVersions();
    const { current_version } = (await workflows.get(id)).body;
    const { definition, ...second } = current_version as Json;
    const one = await versionsOf(id, "?limit=1");
    expect(one).toEqual({ items: [second], next_cursor: expect.any(String), total: 2 });
    const two = await versionsOf(id, `?limit=1&cursor=${one.next_cursor}`);
    const first = { version: 1, change_note: null, created_by: { id: api.account.userId } };
    expect(two).toMatchObject({ items: [first], next_cursor: null, total: 2 });
    const found = await api.ask("GET", at(id, `versions/${second.id}`));
    expect(found.body).toEqual({ ...second, definition });
    const [{ id: firstId }] = two.items as [Json];
    expect((await api.ask("GET", at(id, `versions/${firstId}`))).body).toMatchObject({ definition: FIRST });
    // Of a workflow, and of no other.
    const other = await withVersions();
    expect((await api.ask("GET", at(other, `versions/${firstId}`))).status).toBe(404);
    expect(codeOf(await post(other, `versions/${firstId}/restore`, { body: { revision: 4 } }))).toEqual([
      ...[404, "not_found"],
    ]);
    expect((await workflows.get(other)).body.draft_revision).toBe(4);
  });

  test("are none before one is published", async () => {
    const { id } = await workflows.created(space.id);
    expect(await versionsOf(id)).toEqual({ items: [], next_cursor: null, total: 0 });
  });

  test("are restored into the draft that was seen, and published as another version", async () => {
    const id = await withVersions();
    const [, { id: first }] = (await versionsOf(id)).items as [Json, Json];
    const path = `versions/${first}/restore`;
    for (const revision of [3, 5]) {
      const outdated = await post(id, path, { body: { revision } });
      expect(codeOf(outdated)).toEqual([409, "draft_revision_outdated"]);
      expect(outdated.body.errors).toEqual([
        { path: "body.revision", message: "The draft is at revision 4." },
      ]);
    }
    expect((await post(id, path, { body: {} })).status).toBe(400);
    const { status, body } = await post(id, path, { body: { revision: 4 } });
    expect(status).toBe(200);
    expect(body).toMatchObject({ draft: FIRST, draft_revision: 5, draft_differs: true });
    expect(body.current_version).toMatchObject({ version: 2, definition: SECOND });
    expect((await workflows.publish(id)).body.current_version).toMatchObject({
      version: 3,
      definition: FIRST,
    });
    const { id: run } = await runs.started(id);
    expect((await runs.get(run)).version).toMatchObject({ version: 3 });
    await runs.cancel(run);
  });
});

test("a workflow is switched off and on, beside other changes or alone", async () => {
  const id = await withVersions();
  const { body } = await workflows.update(id, { enabled: false });
  expect(body).toMatchObject({ enabled: false, status: "ACTIVE", draft_revision: 4 });
  expect((await workflows.update(id, { enabled: false })).status).toBe(200);
  const refused = await runs.start(id);
  expect(codeOf(refused)).toEqual([409, "workflow_disabled"]);
  expect((await workflows.update(id, { name: "Off" })).body).toMatchObject({ name: "Off", enabled: false });
  expect((await workflows.list(space.id)).body.items).toContainEqual(
    expect.objectContaining({ id, enabled: false }),
  );
  const on = await workflows.update(id, { name: "On", enabled: true });
  expect(on.body).toMatchObject({ name: "On", enabled: true });
  const { id: run } = await runs.started(id);
  await runs.cancel(run);
  for (const enabled of [null, "false", 0])
    expect((await workflows.update(id, { enabled })).status).toBe(400);
});

test("an archived workflow leaves the list of the others, stays as it is, and comes back", async () => {
  const { id: space_id } = await documents.newSpace();
  const [kept, id] = [await withVersions(space_id), await withVersions(space_id)];
  await workflows.update(id, { enabled: false });
  const before = (await workflows.get(id)).body;
  for (let again = 0; again < 2; again++) {
    const { status, body } = await post(id, "archive");
    expect([status, body.status, body.enabled]).toEqual([200, "ARCHIVED", false]);
  }
  const idsOf = async (query: string) => {
    const { items, total } = (await workflows.list(space_id, query)).body;
    return [(items as Json[]).map((one) => one.id), total];
  };
  expect(await idsOf("")).toEqual([[kept], 1]);
  expect(await idsOf("&status=ARCHIVED")).toEqual([[id], 1]);
  expect((await workflows.get(id)).body).toMatchObject({ status: "ARCHIVED", draft: before.draft });
  for (let again = 0; again < 2; again++) {
    const { updated_at: _, ...back } = (await post(id, "unarchive")).body;
    const { updated_at: __, ...was } = before;
    expect(back).toEqual(was);
  }
  expect(await idsOf("")).toEqual([[id, kept], 2]);
  expect(await idsOf("&status=ARCHIVED")).toEqual([[], 0]);
});

const STATES = ["there", "switched off", "archived", "in the bin"] as const;
const ROLES = ["ADMIN", "EDITOR", "VIEWER", "nobody", "stranger"] as const;
const READS = ["get", "versions", "version"];
/** What is archived takes no other change than out of the archive. */
const CHANGES = ["rename", "switch off", "switch on", "save", "restore", "publish"];

describe.each(STATES)("a workflow that is %s", (state) => {
  test("is read and changed by those who may", async () => {
    const { id: space_id } = await documents.newSpace();
    const people: Record<string, AskOptions> = { ADMIN: {}, stranger: { key: (await api.newAccount()).key } };
    for (const role of ["EDITOR", "VIEWER", "nobody"]) {
      const user = await newUser();
      people[role] = { key: user.key };
      if (role !== "nobody") await setRole(space_id, user, role);
    }
    type Made = { readonly id: string; readonly version: unknown; readonly before: Json };
    const make = async (): Promise<Made> => {
      const id = await withVersions(space_id);
      const version = ((await versionsOf(id)).items as Json[])[1]!.id;
      if (state === "switched off") await workflows.update(id, { enabled: false });
      if (state === "archived") await post(id, "archive");
      const before = (await workflows.get(id)).body;
      if (state === "in the bin") await bin.remove({ path: `/v1/workflows/${id}` });
      return { id, version, before };
    };
    // As it was made, until somebody may change it.
    let made: Made | null = null;
    for (const role of ROLES) {
      const by = people[role]!;
      const asks: Record<string, (id: string, version: unknown) => Promise<Asked>> = {
        get: (id) => workflows.get(id, by),
        versions: (id) => api.ask("GET", at(id, "versions"), by),
        version: (id, version) => api.ask("GET", at(id, `versions/${version}`), by),
        rename: (id) => workflows.update(id, { name: "renamed" }, by),
        "switch off": (id) => workflows.update(id, { enabled: false }, by),
        "switch on": (id) => workflows.update(id, { enabled: true }, by),
        save: (id) => workflows.save(id, 4, FIRST, by),
        restore: (id, version) => post(id, `versions/${version}/restore`, { ...by, body: { revision: 4 } }),
        publish: (id) => workflows.publish(id, {}, by),
        archive: (id) => post(id, "archive", by),
        unarchive: (id) => post(id, "unarchive", by),
      };
      for (const [what, ask] of Object.entries(asks)) {
        made ??= await make();
        const { id, version, before } = made;
        const expected =
          role === "nobody" || role === "stranger" || state === "in the bin"
            ? [404, "not_found"]
            : role === "VIEWER" && !READS.includes(what)
              ? [403, "access_denied"]
              : state === "archived" && CHANGES.includes(what)
                ? [409, "workflow_archived"]
                : [200, null];
        expect([what, role, ...codeOf(await ask(id, version))]).toEqual([what, role, ...expected]);
        if (expected[0] === 200 && !READS.includes(what)) made = null;
        else if (state !== "in the bin") expect((await workflows.get(id)).body).toEqual(before);
      }
    }
    if (made === null) return;
    await bin.restore({ path: `/v1/workflows/${made.id}` });
    expect((await workflows.get(made.id)).body).toEqual(made.before);
  });
});
