import { BIN_KINDS, type BinKind } from "../../src/workspace/model/bin.ts";
import { FIRST_DEFINITION } from "../../src/workspace/model/definition.ts";
import type { AreaTests, Made } from "../support/area-tests.ts";
import type { Json, TestApi } from "../support/sealpost-api.ts";
import {
  DRAFT,
  deletedPath,
  FILE,
  FILE_FIELDS,
  knownValues,
  makeDocument,
  makeLink,
  PASSWORD,
  startRun,
} from "./support/known-values.ts";

/** Deletes and restores, in turn, one of each kind; the space last, as it takes the others. */
function deletions(pathOf: (kind: BinKind, made: Made) => string): AreaTests["writes"] {
  return Object.fromEntries(
    BIN_KINDS.toReversed().flatMap((kind) => [
      [`${kind}s.delete`, (ask: TestApi["ask"], made: Made) => ask("DELETE", pathOf(kind, made))],
      [`${kind}s.restore`, (ask: TestApi["ask"], made: Made) => ask("POST", `${pathOf(kind, made)}/restore`)],
    ]),
  );
}

const VERSION_PATH = "/v1/workflows/{workflow_id}/versions/{version_id}";

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
documents.update PATCH /v1/documents/{document_id} documents:write reversible write async
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
workflows.versions.list GET /v1/workflows/{workflow_id}/versions workflows:read none read sync
workflows.versions.get GET ${VERSION_PATH} workflows:read none read sync
workflows.versions.restore POST ${VERSION_PATH}/restore workflows:write reversible write sync
workflows.archive POST /v1/workflows/{workflow_id}/archive workflows:write reversible write sync
workflows.unarchive POST /v1/workflows/{workflow_id}/unarchive workflows:write reversible write sync
workflows.runs.list GET /v1/workflows/{workflow_id}/runs workflows:read none read sync
workflows.runs.list_all GET /v1/workflow-runs workflows:read none read sync
workflows.hook.create POST /v1/workflows/{workflow_id}/hook workflows:write irreversible write sync
workflows.hook.delete DELETE /v1/workflows/{workflow_id}/hook workflows:write irreversible write sync
workflows.runs.create POST /v1/workflows/{workflow_id}/runs workflows:run irreversible write async
workflows.runs.get GET /v1/workflow-runs/{run_id} workflows:read none read sync
workflows.runs.cancel POST /v1/workflow-runs/{run_id}/cancel workflows:run irreversible write sync
workflows.runs.retry POST /v1/workflow-runs/{run_id}/retry workflows:run irreversible write async
workflows.runs.node_items GET /v1/workflow-runs/{run_id}/nodes/{node_id}/items workflows:read none read sync
workflows.runs.events GET /v1/workflow-runs/{run_id}/events workflows:read none read sync
spaces.bin.list GET /v1/spaces/{space_id}/bin spaces:read none read sync
spaces.delete DELETE /v1/spaces/{space_id} spaces:write irreversible write sync
spaces.restore POST /v1/spaces/{space_id}/restore spaces:write reversible write sync
folders.delete DELETE /v1/spaces/{space_id}/folders/{folder_id} documents:write irreversible write sync
folders.restore POST /v1/spaces/{space_id}/folders/{folder_id}/restore documents:write reversible write sync
documents.delete DELETE /v1/documents/{document_id} documents:write irreversible write sync
documents.restore POST /v1/documents/{document_id}/restore documents:write reversible write sync
pages.delete DELETE /v1/pages/{page_id} pages:write irreversible write sync
pages.restore POST /v1/pages/{page_id}/restore pages:write reversible write sync
workflows.delete DELETE /v1/workflows/{workflow_id} workflows:write irreversible write sync
workflows.restore POST /v1/workflows/{workflow_id}/restore workflows:write reversible write sync
`,
  codes: [
    "too_much_to_delete",
    "workflow_archived",
    "workflow_deleted",
    "workflow_disabled",
    "access_denied",
    "billing_credits_exhausted",
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
    "space_too_large",
    "too_many_spaces",
    "too_many_workflow_runs",
    "workflow_not_published",
    "workflow_run_ended",
    "workflow_run_not_failed",
  ],
  secrets: ["pages.links_create", "workflows.hook.create"],
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
    "workflows.versions.restore": async (ask, made) => {
      const versions = `/v1/workflows/${made["workflows.create"]}/versions`;
      const { items } = (await ask("GET", versions)).body as { items: Json[] };
      return await ask("POST", `${versions}/${items[0]?.id}/restore`, { body: { revision: 2 } });
    },
    "workflows.hook.create": (ask, made) => ask("POST", `/v1/workflows/${made["workflows.create"]}/hook`),
    "workflows.hook.delete": (ask, made) => ask("DELETE", `/v1/workflows/${made["workflows.create"]}/hook`),
    "workflows.runs.create": (ask, made) => ask("POST", `/v1/workflows/${made["workflows.create"]}/runs`),
    "workflows.runs.cancel": (ask, made) =>
      ask("POST", `/v1/workflow-runs/${made["workflows.runs.create"]}/cancel`),
    "workflows.runs.retry": (ask, made) =>
      ask("POST", `/v1/workflow-runs/${made["workflows.runs.create"]}/retry`),
    "workflows.archive": (ask, made) => ask("POST", `/v1/workflows/${made["workflows.create"]}/archive`),
    "workflows.unarchive": (ask, made) => ask("POST", `/v1/workflows/${made["workflows.create"]}/unarchive`),
    ...deletions((kind, made) => deletedPath(kind, `${made["spaces.create"]}`, `${made[`${kind}s.create`]}`)),
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
    "workflows.versions.list": (ask, made) =>
      ask("GET", `/v1/workflows/${made["workflows.create"]}/versions`),
    "workflows.versions.get": async (ask, made) => {
      const versions = `/v1/workflows/${made["workflows.create"]}/versions`;
      const { items } = (await ask("GET", versions)).body as { items: Json[] };
      return await ask("GET", `${versions}/${items[0]?.id}`);
    },
    "workflows.runs.list": (ask, made) => ask("GET", `/v1/workflows/${made["workflows.create"]}/runs`),
    "workflows.runs.list_all": (ask) => ask("GET", "/v1/workflow-runs"),
    "workflows.runs.get": (ask, made) => ask("GET", `/v1/workflow-runs/${made["workflows.runs.create"]}`),
    "workflows.runs.node_items": (ask, made) => {
      const node_id = FIRST_DEFINITION.nodes[0]?.id;
      return ask("GET", `/v1/workflow-runs/${made["workflows.runs.create"]}/nodes/${node_id}/items`);
    },
    "workflows.runs.events": (ask, made) =>
      ask("GET", `/v1/workflow-runs/${made["workflows.runs.create"]}/events`),
    "spaces.bin.list": (ask, made) => ask("GET", `/v1/spaces/${made["spaces.create"]}/bin`),
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
    "workflows.versions.restore": { revision: 1 },
    "workflows.hook.create": {},
    "workflows.runs.create": {},
  },
  tables: [
    ...["workspaces", "spaces", "space_members", "folders", "documents", "loose_objects", "moves"],
    ...["workflows", "workflow_versions", "runs", "node_runs", "node_items", "run_events", "feed_readers"],
    ...["pages", "page_versions", "page_links", "storage", "bin", "schedules", "hooks"],
  ].map((name) => `workspace.${name}`),
  makeThings: async (api, owner) => {
    const { body } = await api.ask("POST", "/v1/spaces", { key: owner.key, body: { name: "Theirs" } });
    const document = await makeDocument(api, body.id, "Theirs", owner);
    await api.ask("PUT", `/v1/documents/${document}/content`, { key: owner.key, content: FILE });
    const { key } = owner;
    const workflow = await api.ask("POST", "/v1/workflows", { key, body: { space_id: body.id } });
    const run = await startRun(api, workflow.body.id, owner);
    const page = await makeLink(api, body.id, owner);
    const folders = `/v1/spaces/${body.id}/folders`;
    const folder = await api.ask("POST", folders, { key, body: { name: "Theirs" } });
    return {
      folder_id: String(folder.body.id),
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
  knownValues,
};
