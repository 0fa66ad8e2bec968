import { fc } from "@fast-check/vitest";
import type { AreaTests } from "../support/area-tests.ts";

const role = fc.constantFrom("ADMIN", "EDITOR", "VIEWER");
const names = fc.oneof(fc.stringMatching(/^[a-z0-9]{1,40}$/), fc.string());

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
`,
  codes: ["access_denied", "folder_name_taken", "space_owner_fixed"],
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
  },
  reads: {
    "spaces.list": (ask) => ask("GET", "/v1/spaces?limit=1"),
    "spaces.get": (ask, made) => ask("GET", `/v1/spaces/${made["spaces.create"]}`),
    "spaces.members.list": (ask, made) => ask("GET", `/v1/spaces/${made["spaces.create"]}/members`),
    "folders.list": (ask, made) => ask("GET", `/v1/spaces/${made["spaces.create"]}/folders`),
  },
  bodies: {
    "spaces.create": { name: "Stranger's" },
    "spaces.update": { name: "Stranger's" },
    "spaces.members.set": { role: "ADMIN" },
    "folders.create": { name: "Stranger's" },
  },
  tables: ["workspaces", "spaces", "space_members", "folders", "documents"].map(
    (name) => `workspace.${name}`,
  ),
  makeThings: async (api, owner) => {
    const { body } = await api.ask("POST", "/v1/spaces", { key: owner.key, body: { name: "Theirs" } });
    return { space_id: String(body.id), user_id: owner.userId };
  },
  knownValues: async (api) => {
    const { accountId } = api.account;
    const spaces: string[] = [];
    for (let n = 0; n < 5; n++) {
      spaces.push(String((await api.ask("POST", "/v1/spaces", { body: { name: `known ${n}` } })).body.id));
    }
    const folder = await api.ask("POST", `/v1/spaces/${spaces[0]}/folders`, { body: { name: "known" } });
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
    return {
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
