// Things of the workspace, and values of its that requests of the tests of all operations name.
import { fc } from "@fast-check/vitest";
import { BIN_KINDS, type BinKind } from "../../../src/workspace/model/bin.ts";
import { FIRST_DEFINITION } from "../../../src/workspace/model/definition.ts";
import type { KnownValues } from "../../support/api-fuzz.ts";
import type { Json, TestAccount, TestApi } from "../../support/sealpost-api.ts";
import { definitions } from "./definitions.ts";

const role = fc.constantFrom("ADMIN", "EDITOR", "VIEWER");
const names = fc.oneof(fc.stringMatching(/^[a-z0-9]{1,40}$/), fc.string());

export const FILE = Buffer.from("What it has.");
export const FILE_FIELDS = { content_type: "application/octet-stream", file_size: FILE.length };
/** More than are uploaded. */
const DOCUMENTS_KNOWN = 200;
/** More than are saved or published. */
const WORKFLOWS_KNOWN = 60;
/** More than are cancelled. */
const RUNS_KNOWN = 100;

export async function makeDocument(
  api: TestApi,
  space_id: unknown,
  file_name: string,
  { key }: Pick<TestAccount, "key"> = api.account,
): Promise<string> {
  const { body } = await api.ask("POST", "/v1/documents", {
    key,
    body: { space_id, file_name, ...FILE_FIELDS },
  });
  return String(body.id);
}

export const DRAFT = { title: "Walk", markdown: "# Walk" };
export const PASSWORD = "correct horse";

/** A page that is published, with a link. */
export async function makeLink(
  api: TestApi,
  space_id: unknown,
  { key }: Pick<TestAccount, "key"> = api.account,
) {
  const make = async (path: string, body?: unknown) =>
    String((await api.ask("POST", path, { key, body })).body.id);
  const page_id = await make("/v1/pages", { space_id, ...DRAFT });
  const version_id = await make(`/v1/pages/${page_id}/publish`);
  const link_id = await make(`/v1/pages/${page_id}/links`, { label: "Theirs" });
  return { page_id, version_id, link_id };
}

async function makeWorkflows(
  api: TestApi,
  space_id: unknown,
  count = WORKFLOWS_KNOWN,
): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let n = 0; n < count; n++) {
    ids.push(String((await api.ask("POST", "/v1/workflows", { body: { space_id } })).body.id));
  }
  return ids;
}

/** Of a workflow that was never changed. */
export async function startRun(
  api: TestApi,
  workflow_id: unknown,
  { key }: Pick<TestAccount, "key"> = api.account,
): Promise<string> {
  await api.ask("POST", `/v1/workflows/${workflow_id}/publish`, { key });
  return String((await api.ask("POST", `/v1/workflows/${workflow_id}/runs`, { key })).body.id);
}

/** What deletes a thing of that kind. */
export function deletedPath(kind: BinKind, spaceId: string, id: string): string {
  return kind === "folder" ? `/v1/spaces/${spaceId}/folders/${id}` : `/v1/${kind}s/${id}`;
}

/** For requests made from the document alone. */
export async function knownValues(api: TestApi): Promise<Readonly<Record<string, KnownValues>>> {
  const { accountId } = api.account;
  const spaces: string[] = [];
  for (let n = 0; n < 5; n++) {
    spaces.push(String((await api.ask("POST", "/v1/spaces", { body: { name: `known ${n}` } })).body.id));
  }
  const folder = await api.ask("POST", `/v1/spaces/${spaces[0]}/folders`, { body: { name: "known" } });
  const empty: string[] = [];
  for (let n = 0; n < DOCUMENTS_KNOWN; n++) empty.push(await makeDocument(api, spaces[0], `empty ${n}`));
  const full = await makeDocument(api, spaces[0], "full");
  await api.ask("PUT", `/v1/documents/${full}/content`, { content: FILE });
  const page = await makeLink(api, spaces[0]);
  const users = await Promise.all(
    Array.from({ length: 3 }, async () => (await api.newUser(accountId)).userId),
  );
  const setMembers = async () => {
    for (const user of users) {
      await api.ask("PUT", `/v1/spaces/${spaces[0]}/members/${user}`, { body: { role: "VIEWER" } });
    }
  };
  const space = { space_id: fc.constantFrom(...spaces) };
  const first = { space_id: fc.constant(String(spaces[0])) };
  const user = { user_id: fc.constantFrom(...users) };
  const parent_id = fc.constant(String(folder.body.id));
  const document = { document_id: fc.constant(full) };
  const fileNames = fc.oneof(fc.uuid(), fc.string());
  const workflows = await makeWorkflows(api, spaces[0]);
  const workflow = { workflow_id: fc.constantFrom(...workflows) };
  const [first_workflow] = await makeWorkflows(api, spaces[0], 1);
  const run = { run_id: fc.constant(await startRun(api, first_workflow)) };
  const published = { workflow_id: fc.constant(String(first_workflow)) };
  const cancelled: string[] = [];
  for (let n = 0; n < RUNS_KNOWN; n++) cancelled.push(await startRun(api, first_workflow));
  const failed = await startRun(api, first_workflow);
  await api.ask("POST", `/v1/workflow-runs/${failed}/cancel`);
  const [archived, versioned] = await makeWorkflows(api, spaces[0], 2);
  const version = (await api.ask("POST", `/v1/workflows/${versioned}/publish`)).body.current_version as Json;
  const ofVersion = { workflow_id: fc.constant(versioned!), version_id: fc.constant(String(version.id)) };
  let draftRevision = 1;
  const readRevision = (path: string, name: string) => async () => {
    draftRevision = Number((await api.ask("GET", path)).body[name]);
  };
  // The request before may have succeeded since it was read.
  const revision = fc.constantFrom(0, 1).map((more) => draftRevision + more);
  const inPage = { page_id: fc.constant(page.page_id) };
  const written = await makeLink(api, spaces[0]);
  let saved = 0;
  const saveAnother = async () => {
    const body = { revision: ++saved, title: "Known", markdown: `${saved}` };
    await api.ask("PUT", `/v1/pages/${written.page_id}/draft`, { body });
  };
  const ofLink = { link_id: fc.constant(page.link_id) };
  const title = names;
  const markdown = fc.string({ unit: "binary", maxLength: 200 });
  const settings = {
    label: names,
    expires_at: fc.constantFrom(null, "2099-01-01T00:00:00Z", "2000-01-01T00:00:00Z"),
    max_visits: fc.option(fc.integer({ min: 0, max: 100 })),
    password: fc.constantFrom(null, PASSWORD, "short"),
  };
  const deleted: Record<string, KnownValues> = {};
  const made = async (path: string, name: string) =>
    String((await api.ask("POST", path, { body: { name } })).body.id);
  const toDelete = {
    space: await made("/v1/spaces", "deleted"),
    folder: await made(`/v1/spaces/${spaces[0]}/folders`, "deleted"),
    document: await makeDocument(api, spaces[0], "deleted"),
    page: (await makeLink(api, spaces[0])).page_id,
    workflow: (await makeWorkflows(api, spaces[0], 1))[0]!,
  };
  // Once for good would be once for all.
  const query = { permanently: fc.constant(false) };
  for (const kind of BIN_KINDS) {
    const id = toDelete[kind];
    const path = deletedPath(kind, String(spaces[0]), id);
    const ofFolder = kind === "folder" && { space_id: fc.constant(String(spaces[0])) };
    const params = { ...ofFolder, [`${kind}_id`]: fc.constant(id) };
    const change = (method: string, at: string) => async () => {
      await api.ask(method, at);
    };
    deleted[`${kind}s.delete`] = { before: change("POST", `${path}/restore`), params, query };
    deleted[`${kind}s.restore`] = { before: change("DELETE", path), params };
  }
  return {
    ...deleted,
    "spaces.bin.list": { params: first },
    "documents.list": { query: { space_id: fc.constant(spaces[0]), folder_id: parent_id } },
    "documents.create": {
      body: fc.record(
        {
          space_id: space.space_id,
          folder_id: parent_id,
          file_name: fileNames,
          content_type: fc.constantFrom("text/markdown", "application/octet-stream", "text"),
          file_size: fc.integer({ min: 0, max: 10_000_000_000 }),
        },
        { requiredKeys: ["space_id", "file_name", "content_type", "file_size"] },
      ),
    },
    "documents.get": { params: document },
    "documents.update": { params: document, body: fc.record({ file_name: fileNames }) },
    "documents.upload": {
      params: { document_id: fc.constantFrom(...empty) },
      file: fc.uint8Array({ minLength: FILE.length, maxLength: FILE.length }),
    },
    "documents.download": { params: document },
    "pages.list": { query: { space_id: fc.constant(spaces[0]) } },
    "pages.create": { body: fc.record({ space_id: space.space_id, title, markdown }) },
    "pages.get": { params: inPage },
    "pages.save": {
      before: readRevision(`/v1/pages/${page.page_id}`, "revision"),
      params: inPage,
      body: fc.record({ revision, title, markdown }),
    },
    "pages.publish": {
      before: saveAnother,
      params: { page_id: fc.constant(written.page_id) },
      body: fc.constant({}),
    },
    "pages.versions.list": { params: inPage },
    "pages.versions.get": { params: { ...inPage, version_id: fc.constant(page.version_id) } },
    "pages.links_create": {
      params: inPage,
      body: fc.record(settings, { requiredKeys: ["label"] }),
    },
    "pages.links_list": { params: inPage },
    "pages.links_get": { params: ofLink },
    "pages.links_update": {
      params: ofLink,
      body: fc.record({ ...settings, pinned: fc.boolean() }, { requiredKeys: [] }),
    },
    "pages.links_retarget": {
      before: async () => {
        await api.ask("PATCH", `/v1/page-links/${page.link_id}`, { body: { expires_at: null } });
      },
      params: ofLink,
      body: fc.record({ page_version_id: fc.constantFrom(page.version_id, page.page_id) }),
    },
    "workflows.list": { query: { space_id: first.space_id } },
    "workflows.create": { body: fc.record(first) },
    "workflows.get": { params: workflow },
    "workflows.update": {
      params: workflow,
      body: fc.record({ name: names, enabled: fc.boolean() }, { requiredKeys: ["name"] }),
    },
    "workflows.draft.save": {
      params: workflow,
      body: fc.record({ revision: fc.constantFrom(1, 2), definition: definitions() }),
    },
    "workflows.publish": { params: workflow, body: fc.constant({}) },
    "workflows.hook.create": {
      params: published,
      body: fc.record({ overlap_seconds: fc.nat({ max: 86_400 }) }),
    },
    "workflows.hook.delete": {
      before: async () => void (await api.ask("POST", `/v1/workflows/${first_workflow}/hook`)),
      params: published,
    },
    "workflows.runs.create": {
      params: published,
      body: fc.record({
        input: fc.dictionary(fc.string(), fc.jsonValue()),
        version: fc.constantFrom(1, 2),
      }),
    },
    "workflows.versions.list": { params: { workflow_id: ofVersion.workflow_id } },
    "workflows.versions.get": { params: ofVersion },
    "workflows.versions.restore": {
      before: readRevision(`/v1/workflows/${versioned}`, "draft_revision"),
      params: ofVersion,
      body: fc.record({ revision }),
    },
    "workflows.archive": { params: { workflow_id: fc.constant(archived!) } },
    "workflows.unarchive": { params: { workflow_id: fc.constant(archived!) } },
    "workflows.runs.list": { params: published },
    "workflows.runs.list_all": { query: { workflow_id: published.workflow_id, space_id: first.space_id } },
    "workflows.runs.retry": { params: { run_id: fc.constant(failed) } },
    "workflows.runs.get": { params: run },
    "workflows.runs.cancel": { params: { run_id: fc.constantFrom(...cancelled) } },
    "workflows.runs.node_items": {
      params: { ...run, node_id: fc.constantFrom(...FIRST_DEFINITION.nodes.map(({ id }) => id)) },
    },
    "workflows.runs.events": { params: run },
    "spaces.create": { body: fc.record({ name: names }) },
    "spaces.get": { params: space },
    "spaces.update": { params: space, body: fc.record({ name: names }) },
    "spaces.members.list": { params: space },
    "spaces.members.set": { params: { ...space, ...user }, body: fc.record({ role }) },
    "spaces.members.remove": { before: setMembers, params: { ...first, ...user } },
    "folders.list": { params: first, query: { parent_id } },
    "folders.create": {
      params: first,
      body: fc.record({ name: names, parent_id }, { requiredKeys: ["name"] }),
    },
  };
}
