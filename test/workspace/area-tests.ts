import { fc } from "@fast-check/vitest";
import { FIRST_DEFINITION } from "../../src/workspace/model/definition.ts";
import type { AreaTests } from "../support/area-tests.ts";
import type { TestAccount, TestApi } from "../support/sealpost-api.ts";
import { definitions } from "./support/definitions.ts";

const role = fc.constantFrom("ADMIN", "EDITOR", "VIEWER");
const names = fc.oneof(fc.stringMatching(/^[a-z0-9]{1,40}$/), fc.string());

const FILE = Buffer.from("What it has.");
const FILE_FIELDS = { content_type: "application/octet-stream", file_size: FILE.length };
/** More than are uploaded. */
const DOCUMENTS_KNOWN = 200;
/** More than are saved or published. */
const WORKFLOWS_KNOWN = 60;
/** More than are cancelled. */
const RUNS_KNOWN = 100;

async function makeDocument(
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

const DRAFT = { title: "Walk", markdown: "# Walk" };
const PASSWORD = "correct horse";

/** A page that is published, with a link. */
async function makeLink(api: TestApi, space_id: unknown, { key }: Pick<TestAccount, "key"> = api.account) {
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
async function startRun(
  api: TestApi,
  workflow_id: unknown,
  { key }: Pick<TestAccount, "key"> = api.account,
): Promise<string> {
  await api.ask("POST", `/v1/workflows/${workflow_id}/publish`, { key });
  return String((await api.ask("POST", `/v1/workflows/${workflow_id}/runs`, { key })).body.id);
}

/** What the tests of all operations know of the workspace's. */
export const workspaceTests: AreaTests = {
  declared: `
spaces.list GET /v1/spaces spaces:read none read sync
spaces.create POST /v1/spaces spaces:write reversible write sync
spaces.get GET /v1/spaces/{space_id} spaces:read none read sync
spaces.update PATCH /v1/spaces/{space_id} spaces:write reversible write sync
spaces.members.list GET /v1/spaces/{space_id}/members spaces:read none read sync
spaces.members.set PUT /v1/spaces/{space_id}/members/{user_id} spaces:write reversible write sync
spaces.members.remove DELETE /v1/spaces/{space_id}/members/{user_id} spaces:write reversible write sync
folders.list GET /v1/spaces/{space_id}/folders documents:read none read sync
folders.create POST /v1/spaces/{space_id}/folders documents:write reversible write sync
documents.list GET /v1/documents documents:read none read sync
documents.create POST /v1/documents documents:write reversible write sync
documents.get GET /v1/documents/{document_id} documents:read none read sync
documents.update PATCH /v1/documents/{document_id} documents:write reversible write sync
documents.upload PUT /v1/documents/{document_id}/content documents:write reversible write sync
documents.download GET /v1/documents/{document_id}/content documents:read none read sync
pages.list GET /v1/pages pages:read none read sync
pages.create POST /v1/pages pages:write reversible write sync
pages.get GET /v1/pages/{page_id} pages:read none read sync
pages.save PUT /v1/pages/{page_id}/draft pages:write reversible write sync
pages.publish POST /v1/pages/{page_id}/publish pages:write reversible write sync
pages.versions.list GET /v1/pages/{page_id}/versions pages:read none read sync
pages.versions.get GET /v1/pages/{page_id}/versions/{version_id} pages:read none read sync
pages.links_create POST /v1/pages/{page_id}/links pages:write reversible write sync
pages.links_list GET /v1/pages/{page_id}/links pages:read none read sync
pages.links_get GET /v1/page-links/{link_id} pages:read none read sync
pages.links_update PATCH /v1/page-links/{link_id} pages:write reversible write sync
pages.links_retarget POST /v1/page-links/{link_id}/retarget pages:write reversible write sync
workflows.list GET /v1/workflows workflows:read none read sync
workflows.create POST /v1/workflows workflows:write reversible write sync
workflows.get GET /v1/workflows/{workflow_id} workflows:read none read sync
workflows.update PATCH /v1/workflows/{workflow_id} workflows:write reversible write sync
workflows.draft.save PUT /v1/workflows/{workflow_id}/draft workflows:write reversible write sync
workflows.publish POST /v1/workflows/{workflow_id}/publish workflows:write reversible write sync
workflows.runs.create POST /v1/workflows/{workflow_id}/runs workflows:run irreversible write async
workflows.runs.get GET /v1/workflow-runs/{run_id} workflows:read none read sync
workflows.runs.cancel POST /v1/workflow-runs/{run_id}/cancel workflows:run irreversible write sync
workflows.runs.node_items GET /v1/workflow-runs/{run_id}/nodes/{node_id}/items workflows:read none read sync
workflows.runs.events GET /v1/workflow-runs/{run_id}/events workflows:read none read sync
`,
  codes: [
    "access_denied",
    "document_already_uploaded",
    "document_being_uploaded",
    "document_name_taken",
    "document_not_uploaded",
    "draft_invalid",
    "draft_not_changed",
    "draft_revision_outdated",
    "folder_name_taken",
    "page_already_published",
    "page_changed",
    "page_link_expired",
    "page_link_revoked",
    "page_not_published",
    "page_too_heavy",
    "page_version_mismatch",
    "pages_not_configured",
    "space_owner_fixed",
    "too_many_spaces",
    "too_many_workflow_runs",
    "workflow_not_published",
    "workflow_run_ended",
  ],
  secrets: ["pages.links_create"],
  writes: {
    "spaces.create": (ask) => ask("POST", "/v1/spaces", { body: { name: "Walk" } }),
    "spaces.update": (ask, made) =>
      ask("PATCH", `/v1/spaces/${made["spaces.create"]}`, { body: { name: "Walked" } }),
    "spaces.members.set": (ask, made) =>
      ask("PUT", `/v1/spaces/${made["spaces.create"]}/members/${made.user}`, { body: { role: "EDITOR" } }),
    "spaces.members.remove": (ask, made) =>
      ask("DELETE", `/v1/spaces/${made["spaces.create"]}/members/${made.user}`),
    "folders.create": (ask, made) =>
      ask("POST", `/v1/spaces/${made["spaces.create"]}/folders`, { body: { name: "Walk" } }),
    "documents.create": (ask, made) => {
      const space_id = made["spaces.create"];
      return ask("POST", "/v1/documents", { body: { space_id, file_name: "Walk", ...FILE_FIELDS } });
    },
    "documents.upload": (ask, made) =>
      ask("PUT", `/v1/documents/${made["documents.create"]}/content`, { content: FILE }),
    "documents.update": (ask, made) =>
      ask("PATCH", `/v1/documents/${made["documents.create"]}`, { body: { file_name: "Walked" } }),
    "pages.create": (ask, made) =>
      ask("POST", "/v1/pages", { body: { space_id: made["spaces.create"], ...DRAFT } }),
    "pages.save": (ask, made) =>
      ask("PUT", `/v1/pages/${made["pages.create"]}/draft`, { body: { revision: 1, ...DRAFT } }),
    "pages.publish": (ask, made) => ask("POST", `/v1/pages/${made["pages.create"]}/publish`),
    "pages.links_create": (ask, made) =>
      ask("POST", `/v1/pages/${made["pages.create"]}/links`, { body: { label: "Walk" } }),
    "pages.links_update": (ask, made) =>
      ask("PATCH", `/v1/page-links/${made["pages.links_create"]}`, { body: { password: PASSWORD } }),
    "pages.links_retarget": (ask, made) =>
      ask("POST", `/v1/page-links/${made["pages.links_create"]}/retarget`, {
        body: { page_version_id: made["pages.publish"] },
      }),
    "workflows.create": (ask, made) =>
      ask("POST", "/v1/workflows", { body: { space_id: made["spaces.create"] } }),
    "workflows.update": (ask, made) =>
      ask("PATCH", `/v1/workflows/${made["workflows.create"]}`, { body: { name: "Walked" } }),
    "workflows.draft.save": (ask, made) => {
      const body = { revision: 1, definition: FIRST_DEFINITION };
      return ask("PUT", `/v1/workflows/${made["workflows.create"]}/draft`, { body });
    },
    "workflows.publish": (ask, made) => ask("POST", `/v1/workflows/${made["workflows.create"]}/publish`),
    "workflows.runs.create": (ask, made) => ask("POST", `/v1/workflows/${made["workflows.create"]}/runs`),
    "workflows.runs.cancel": (ask, made) =>
      ask("POST", `/v1/workflow-runs/${made["workflows.runs.create"]}/cancel`),
  },
  reads: {
    "spaces.list": (ask) => ask("GET", "/v1/spaces?limit=1"),
    "spaces.get": (ask, made) => ask("GET", `/v1/spaces/${made["spaces.create"]}`),
    "spaces.members.list": (ask, made) => ask("GET", `/v1/spaces/${made["spaces.create"]}/members`),
    "folders.list": (ask, made) => ask("GET", `/v1/spaces/${made["spaces.create"]}/folders`),
    "documents.list": (ask, made) => ask("GET", `/v1/documents?space_id=${made["spaces.create"]}`),
    "documents.get": (ask, made) => ask("GET", `/v1/documents/${made["documents.create"]}`),
    "documents.download": (ask, made) => ask("GET", `/v1/documents/${made["documents.create"]}/content`),
    "pages.list": (ask, made) => ask("GET", `/v1/pages?space_id=${made["spaces.create"]}`),
    "pages.get": (ask, made) => ask("GET", `/v1/pages/${made["pages.create"]}`),
    "pages.versions.list": (ask, made) => ask("GET", `/v1/pages/${made["pages.create"]}/versions`),
    "pages.versions.get": (ask, made) =>
      ask("GET", `/v1/pages/${made["pages.create"]}/versions/${made["pages.publish"]}`),
    "pages.links_list": (ask, made) => ask("GET", `/v1/pages/${made["pages.create"]}/links`),
    "pages.links_get": (ask, made) => ask("GET", `/v1/page-links/${made["pages.links_create"]}`),
    "workflows.list": (ask, made) => ask("GET", `/v1/workflows?space_id=${made["spaces.create"]}`),
    "workflows.get": (ask, made) => ask("GET", `/v1/workflows/${made["workflows.create"]}`),
    "workflows.runs.get": (ask, made) => ask("GET", `/v1/workflow-runs/${made["workflows.runs.create"]}`),
    "workflows.runs.node_items": (ask, made) => {
      const node_id = FIRST_DEFINITION.nodes[0]?.id;
      return ask("GET", `/v1/workflow-runs/${made["workflows.runs.create"]}/nodes/${node_id}/items`);
    },
    "workflows.runs.events": (ask, made) =>
      ask("GET", `/v1/workflow-runs/${made["workflows.runs.create"]}/events`),
  },
  bodies: {
    "spaces.create": { name: "Stranger's" },
    "spaces.update": { name: "Stranger's" },
    "spaces.members.set": { role: "ADMIN" },
    "folders.create": { name: "Stranger's" },
    "documents.create": {
      space_id: "0199a1f0-7d2c-7c3a-9b1e-000000000000",
      file_name: "Stranger's",
      ...FILE_FIELDS,
    },
    "documents.update": { file_name: "Stranger's" },
    "pages.create": { space_id: "0199a1f0-7d2c-7c3a-9b1e-000000000000", ...DRAFT },
    "pages.save": { revision: 1, ...DRAFT },
    "pages.publish": { revision: 1 },
    "pages.links_create": { label: "Stranger's" },
    "pages.links_update": { label: "Stranger's" },
    "pages.links_retarget": { page_version_id: "0199a1f0-7d2c-7c3a-9b1e-000000000000" },
    "workflows.create": { space_id: "0199a1f0-7d2c-7c3a-9b1e-000000000000" },
    "workflows.update": { name: "Stranger's" },
    "workflows.draft.save": { revision: 1, definition: FIRST_DEFINITION },
    "workflows.publish": {},
    "workflows.runs.create": {},
  },
  tables: [
    ...["workspaces", "spaces", "space_members", "folders", "documents", "loose_objects", "moves"],
    ...["workflows", "workflow_versions", "runs", "node_runs", "node_items", "run_events", "feed_readers"],
    ...["pages", "page_versions", "page_links", "storage"],
  ].map((name) => `workspace.${name}`),
  makeThings: async (api, owner) => {
    const { body } = await api.ask("POST", "/v1/spaces", { key: owner.key, body: { name: "Theirs" } });
    const document = await makeDocument(api, body.id, "Theirs", owner);
    await api.ask("PUT", `/v1/documents/${document}/content`, { key: owner.key, content: FILE });
    const { key } = owner;
    const workflow = await api.ask("POST", "/v1/workflows", { key, body: { space_id: body.id } });
    const run = await startRun(api, workflow.body.id, owner);
    const page = await makeLink(api, body.id, owner);
    return {
      space_id: String(body.id),
      user_id: owner.userId,
      document_id: document,
      workflow_id: String(workflow.body.id),
      run_id: run,
      node_id: String(FIRST_DEFINITION.nodes[0]?.id),
      page_id: page.page_id,
      version_id: page.version_id,
      link_id: page.link_id,
    };
  },
  knownValues: async (api) => {
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
    return {
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
        params: inPage,
        body: fc.record({ revision: fc.integer({ min: 1, max: 3 }), title, markdown }),
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
        params: ofLink,
        body: fc.record({ page_version_id: fc.constantFrom(page.version_id, page.page_id) }),
      },
      "workflows.list": { query: { space_id: first.space_id } },
      "workflows.create": { body: fc.record(first) },
      "workflows.get": { params: workflow },
      "workflows.update": { params: workflow, body: fc.record({ name: names }) },
      "workflows.draft.save": {
        params: workflow,
        body: fc.record({ revision: fc.constantFrom(1, 2), definition: definitions() }),
      },
      "workflows.publish": { params: workflow, body: fc.constant({}) },
      "workflows.runs.create": {
        params: published,
        body: fc.record({
          input: fc.dictionary(fc.string(), fc.jsonValue()),
          version: fc.constantFrom(1, 2),
        }),
      },
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
  },
};
