// Hooks of workflows, and what is posted to them.
import { expect } from "vitest";
import { importSigningKey, signatureHeader } from "../../src/signing/index.ts";
import type { Definition } from "../../src/workspace/model/definition.ts";
import type { Asked, TestApi } from "../support/sealpost-api.ts";
import { api, space } from "./run-world.ts";
import { workflowsOf } from "./support/workflows.ts";

export const workflows = workflowsOf((...asked) => api.ask(...asked));

export function atHook(auth_mode = "plain"): Definition {
  const parameters = { auth_mode };
  return { nodes: [{ id: "hook", kind: "hook_trigger", name: "Hook", parameters }], edges: [] } as never;
}

export type Hook = {
  readonly id: string;
  readonly path: string;
  readonly key: string;
  readonly secret: string;
};

export const hookOf = (workflowId: unknown) => `/v1/workflows/${workflowId}/hook`;

export async function makeHook(
  workflowId: unknown,
  body: object = {},
  { ask }: Pick<TestApi, "ask"> = api,
): Promise<Hook> {
  const { status, body: made } = await ask("POST", hookOf(workflowId), { body });
  expect([status, made.code]).toEqual([201, undefined]);
  const { pathname } = new URL(String(made.url));
  return {
    ...{ id: String(made.id), path: pathname, key: pathname.split("/").at(-1)! },
    secret: String(made.signing_secret),
  };
}

export async function published(auth_mode = "plain", spaceId: unknown = space.id) {
  const { id } = await workflows.published(spaceId, atHook(auth_mode));
  return { workflowId: String(id), hook: await makeHook(id) };
}

type Post = { readonly headers?: Record<string, string>; readonly idempotencyKey?: string | null };

/** Without any API key. */
export const post = (path: string, body: unknown = {}, { headers = {}, idempotencyKey = null }: Post = {}) =>
  api.ask("POST", path, { key: null, body, headers, idempotencyKey });

export const codeOf = ({ status, body }: Asked) => [status, body.code];

export function signed(
  body: string,
  secret: string,
  timestampSeconds = Math.floor(Date.now() / 1_000),
): Post {
  const keys = [importSigningKey(secret)];
  return {
    headers: { "extract-signature": signatureHeader({ timestampSeconds, body: Buffer.from(body), keys }) },
  };
}
