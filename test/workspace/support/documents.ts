// Spaces and documents, as clients make them.
import { createHash } from "node:crypto";
import { expect } from "vitest";
import type { Asked, AskOptions, Json } from "../../support/sealpost-api.ts";

type Ask = (method: string, path: string, options?: AskOptions) => Promise<Asked>;

export type NewDocument = {
  readonly space_id?: unknown;
  readonly folder_id?: unknown;
  readonly file_name?: unknown;
  readonly content_type?: unknown;
  readonly file_size?: unknown;
};

export const BYTES = Buffer.from("What a document has.\n");

export function digestOf(bytes: Uint8Array): string {
  return `sha-256=:${createHash("sha256").update(bytes).digest("base64")}:`;
}

/** Requests about documents; `options` say who asks. */
export function documentsOf(ask: Ask) {
  const newSpace = async (name = "documents", options: AskOptions = {}): Promise<Json> => {
    const { status, body } = await ask("POST", "/v1/spaces", { ...options, body: { name } });
    expect(status).toBe(201);
    return body;
  };
  const create = (document: NewDocument, options: AskOptions = {}) =>
    ask("POST", "/v1/documents", {
      ...options,
      body: { file_name: "Report.txt", content_type: "text/plain", file_size: BYTES.length, ...document },
    });
  const created = async (document: NewDocument, options: AskOptions = {}): Promise<Json> => {
    const { status, body } = await create(document, options);
    expect([status, body.code]).toEqual([201, undefined]);
    return body;
  };
  const put = (id: unknown, content: Uint8Array = BYTES, options: AskOptions = {}) =>
    ask("PUT", `/v1/documents/${id}/content`, {
      ...options,
      content,
      headers: { "content-type": "text/plain", ...options.headers },
    });
  const uploaded = async (document: NewDocument, content: Uint8Array = BYTES, options: AskOptions = {}) => {
    const { id } = await created({ file_size: content.length, ...document }, options);
    const headers = { "content-type": String(document.content_type ?? "text/plain") };
    const { status, body } = await put(id, content, { ...options, headers });
    expect([status, body.code]).toEqual([200, undefined]);
    return body;
  };
  const get = (id: unknown, options: AskOptions = {}) => ask("GET", `/v1/documents/${id}`, options);
  const download = (id: unknown, options: AskOptions = {}) =>
    ask("GET", `/v1/documents/${id}/content`, options);
  const rename = (id: unknown, file_name: unknown, options: AskOptions = {}) =>
    ask("PATCH", `/v1/documents/${id}`, { ...options, body: { file_name } });
  const renameSpace = (id: unknown, name: string, options: AskOptions = {}) =>
    ask("PATCH", `/v1/spaces/${id}`, { ...options, body: { name } });
  return { newSpace, create, created, put, uploaded, get, download, rename, renameSpace };
}
