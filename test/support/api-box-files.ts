// What a box holds, as a file: the operations whose body, or answer, is a stream.
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import {
  type Content,
  contentResponse,
  jsonResponse,
  type Operation,
  type ReceivedBody,
  streamBody,
} from "../../src/http/operation.ts";
import { toyTx } from "./api-toy-stores.ts";

export const FILE_BYTES_MAX = 1_100_000_000;

/** Where the bytes of an upload go: how to read them again. */
export type KeepFile = (body: ReceivedBody) => Promise<Content["open"]>;

export type BoxFiles = {
  /** By account and box. */
  readonly files: Map<string, Content>;
  keep: KeepFile;
};

export const keepInMemory: KeepFile = async (body) => {
  const bytes = await buffer(body.open());
  return async ({ first, last }) => Readable.from([bytes.subarray(first, last + 1)]);
};

const params = z.strictObject({ box_id: z.string().regex(/^[a-z0-9-]{1,40}$/) });
const described = { path: "/v1/boxes/{box_id}/file" } as const;

export function createFileOperations(
  boxes: BoxFiles,
  isBox: (accountId: string, id: string) => boolean,
): readonly Operation[] {
  const { read, upload } = operationDefiners<"box_sealed">("Boxes");
  return [
    upload({
      ...described,
      key: "boxes.file.set",
      summary: "Put a file into a box",
      description: "Puts a file into a box, for a test.",
      method: "PUT",
      scope: "boxes:write",
      risk: "reversible",
      mode: "sync",
      params,
      body: streamBody({ bytesMax: FILE_BYTES_MAX }),
      audit: ({ params, body }) => ({ box_id: params.box_id, bytes: body.bytes }),
      response: jsonResponse(200, z.object({ bytes: z.int(), media_type: z.string() })),
      errors: ["not_found", "box_sealed"],
      receive: async ({ accountId, params, body, problem }) => {
        if (!isBox(accountId, params.box_id)) throw problem("not_found");
        return await boxes.keep(body);
      },
      handle: async ({ accountId, params, body, problem }, tx, open) => {
        const { bytes, mediaType, sha256 } = body;
        const at = `${accountId}/${params.box_id}`;
        const before = boxes.files.get(at);
        const etag = sha256.toString("hex");
        boxes.files.set(at, { bytes, mediaType, etag, fileName: `${params.box_id}.txt`, open });
        toyTx(tx).undo.push(() => (before ? boxes.files.set(at, before) : boxes.files.delete(at)));
        if (mediaType === "text/sealed") throw problem("box_sealed");
        return { body: { bytes, media_type: mediaType } };
      },
      recheck: async () => undefined,
      refused: async () => undefined,
    }),
    read({
      ...described,
      key: "boxes.file.get",
      summary: "Take the file out of a box",
      description: "Reads the file in a box, for a test.",
      scope: "boxes:read",
      params,
      response: contentResponse(),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }) => {
        const content = boxes.files.get(`${accountId}/${params.box_id}`);
        if (content === undefined) throw problem("not_found");
        return { content };
      },
    }),
  ];
}
