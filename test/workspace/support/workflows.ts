// Workflows, as clients make them.
import { expect } from "vitest";
import type { Definition } from "../../../src/workspace/model/definition.ts";
import type { Asked, AskOptions, Json } from "../../support/sealpost-api.ts";

type Ask = (method: string, path: string, options?: AskOptions) => Promise<Asked>;

/** Requests about workflows; `options` say who asks. */
export function workflowsOf(ask: Ask) {
  const newSpace = async (options: AskOptions = {}): Promise<string> => {
    const { status, body } = await ask("POST", "/v1/spaces", {
      ...options,
      body: { name: "with workflows" },
    });
    expect(status).toBe(201);
    return String(body.id);
  };
  const create = (space_id: unknown, options: AskOptions = {}) =>
    ask("POST", "/v1/workflows", { ...options, body: { space_id } });
  const created = async (space_id: unknown, options: AskOptions = {}): Promise<Json> => {
    const { status, body } = await create(space_id, options);
    expect([status, body.code]).toEqual([201, undefined]);
    return body;
  };
  const get = (id: unknown, options: AskOptions = {}) => ask("GET", `/v1/workflows/${id}`, options);
  const list = (space_id: unknown, query = "", options: AskOptions = {}) =>
    ask("GET", `/v1/workflows?space_id=${space_id}${query}`, options);
  const update = (id: unknown, body: object, options: AskOptions = {}) =>
    ask("PATCH", `/v1/workflows/${id}`, { ...options, body });
  const save = (id: unknown, revision: unknown, definition: unknown, options: AskOptions = {}) =>
    ask("PUT", `/v1/workflows/${id}/draft`, { ...options, body: { revision, definition } });
  const publish = (id: unknown, body: object = {}, options: AskOptions = {}) =>
    ask("POST", `/v1/workflows/${id}/publish`, { ...options, body });
  /** A published workflow of that definition, in its first version. */
  const published = async (
    space_id: unknown,
    definition: Definition,
    options: AskOptions = {},
  ): Promise<Json> => {
    const { id } = await created(space_id, options);
    expect((await save(id, 1, definition, options)).status).toBe(200);
    const { status, body } = await publish(id, {}, options);
    expect([status, body.code]).toEqual([200, undefined]);
    return body;
  };
  return { newSpace, create, created, get, list, update, save, publish, published };
}
