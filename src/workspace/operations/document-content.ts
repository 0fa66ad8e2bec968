import type { Readable } from "node:stream";
import type { ClientBase } from "pg";
import { z } from "zod";
import { isApiKeyValid } from "../../accounts/api-keys-sql.ts";
import { id } from "../../api/fields.ts";
import type { ByteRange } from "../../http/bytes.ts";
import { RETRY_AFTER_UNAVAILABLE_SECONDS } from "../../http/limits.ts";
import {
  type AnnouncedBody,
  contentResponse,
  type HandlerCode,
  jsonResponse,
  type Operation,
  type OperationRequest,
  streamBody,
} from "../../http/operation.ts";
import { type FieldError, Problem, TemporarilyUnavailable } from "../../http/problems.ts";
import { DOCUMENT_BYTES_MAX, Document, isInPlace, newObjectKey } from "../model/documents.ts";
import { readMovedObject } from "../objects/known-store.ts";
import { ObjectShareError, ObjectStoreAwayError } from "../objects/object-store.ts";
import { type FoundDocument, findDocument, lockDocument, setUploaded } from "../store/documents.ts";
import { RESERVED_MS, releaseKeys, reserveKeys, takeReserved } from "../store/loose-objects.ts";
import { askForMove } from "../store/moves.ts";
import type { SpaceUser } from "../store/statements.ts";
import { requireRoomForLeftovers } from "../store/storage.ts";
import { documentBody, QUOTA_CODES } from "./documents.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

/**
 * Passes a result through; when the object store is away, rejects with an error that is answered as 503, and when
 * whoever asks has its share of it, with 429.
 */
async function objectsAs503<T>(work: Promise<T>, onAway: (error: ObjectStoreAwayError) => void): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ObjectShareError) {
      const headers = { "retry-after": String(RETRY_AFTER_UNAVAILABLE_SECONDS) };
      throw new Problem("rate_limited", { headers, cause: error });
    }
    if (!(error instanceof ObjectStoreAwayError)) throw error;
    onAway(error);
    throw new TemporarilyUnavailable("the object store is unavailable", { cause: error });
  }
}

const { read, upload } = operationsOf("Documents");
const path = "/v1/documents/{document_id}/content";
const params = z.strictObject({ document_id: id });

/** A put that goes on for longer than its key is reserved is of no use. */
const PUT_WITHIN_MS = RESERVED_MS - 3_600_000;

/** The bytes of documents. */
export function contentOperations({
  pool,
  objects,
  onObjectsAway,
}: Pick<WorkspaceDependencies, "pool" | "objects" | "onObjectsAway">): readonly Operation[] {
  /** Documents whose content comes to this process: each holds a place, and only one upload of each can count. */
  const uploading = new Set<string>();

  async function openObject(user: SpaceUser, document: FoundDocument, range: ByteRange): Promise<Readable> {
    const open = (key: string) => objects.get(key, { start: range.first, end: range.last });
    const findKey = async () => {
      const found = await findDocument(pool, user, document.id);
      if (found === null) throw new Problem("not_found");
      return found.storage_key;
    };
    return (await readMovedObject(document.storage_key, open, findKey)).body;
  }

  return [
    upload({
      risk: "reversible",
      key: "documents.upload",
      summary: "Upload a document's content",
      description:
        "Stores the body as the content of a document that has none yet, with the Content-Type and the length that " +
        "the document was created with. For members who may upload: others get 403. 409 if it already has " +
        "content, or another upload of it is in progress.",
      method: "PUT",
      path,
      scope: "documents:write",
      params,
      body: streamBody({ bytesMax: DOCUMENT_BYTES_MAX }),
      audit: ({ params, body: { bytes, sha256 } }) => ({ ...params, bytes, sha256: sha256.toString("hex") }),
      response: jsonResponse(200, Document),
      errors: [
        ...(["not_found", "access_denied", "document_already_uploaded", "document_being_uploaded"] as const),
        ...QUOTA_CODES,
      ],
      receive: async (request) => {
        const { user, body } = request;
        const document = await requireUploadable(request, pool, findDocument);
        const faults = faultsOf(body, document);
        if (faults.length > 0) throw request.problem("invalid_request", faults);
        if (uploading.has(document.id)) throw request.problem("document_being_uploaded");
        uploading.add(document.id);
        // Each upload has a key of its own: of two at once, the one that loses cannot replace what the other stored.
        const key = newObjectKey(document);
        try {
          await requireRoomForLeftovers(pool, user);
          const reserved = await reserveKeys(pool, user, [key], body.bytes, document.space_id);
          // The account was erased meanwhile, and its keys with it.
          if (reserved.length === 0) throw new Problem("unauthorized");
          // Opened when the store has room for it: a client that waits to be told to go on sends nothing before.
          const opened = { [Symbol.asyncIterator]: () => body.open()[Symbol.asyncIterator]() };
          const within = AbortSignal.timeout(PUT_WITHIN_MS);
          const putting = objects.put(key, opened, body.bytes, within, request.sharer);
          await objectsAs503(putting, onObjectsAway);
        } catch (error) {
          // If this fails too, the key is released when its time is over.
          await releaseKeys(pool, user, { keys: [key] }).catch(() => undefined);
          throw error;
        } finally {
          uploading.delete(document.id);
        }
        return key;
      },
      recheck: async (request, tx) => {
        await findUploadable(request, tx, findDocument);
      },
      handle: async (request, tx, key) => {
        const { user } = request;
        const document = await findUploadable(request, tx, lockDocument);
        if ((await takeReserved(tx, user.accountId, [key])).length === 0) {
          throw new TemporarilyUnavailable("an upload took longer than its key was reserved for");
        }
        const isSet = await setUploaded(tx, user, document.id, key);
        if (!isSet) throw new Error(`Document ${document.id} was to be without content.`);
        // Renamed meanwhile, it or its space.
        if (!isInPlace(key, document)) {
          await askForMove(tx, user, document.space_id, document.id);
        }
        return { body: documentBody((await findDocument(tx, user, document.id))!) };
      },
      refused: async (request, key) => await releaseKeys(pool, request.user, { keys: [key] }),
    }),
    read({
      key: "documents.download",
      summary: "Download a document's content",
      description:
        "The content as it was uploaded, or a range of it; to be saved, never to be shown as a page. 404 if you are " +
        "not a member of its space, 409 if it has no content yet.",
      path,
      scope: "documents:read",
      params,
      response: contentResponse(),
      errors: ["not_found", "access_denied", "document_not_uploaded"],
      handle: async (request) => {
        const { user, params } = request;
        const found = findDocument(pool, user, params.document_id);
        const document = await requirePermission(request, "download", found);
        if (!document.has_content) throw request.problem("document_not_uploaded");
        return {
          content: {
            bytes: document.file_size,
            mediaType: document.content_type,
            // It is uploaded once and never changes.
            etag: document.id,
            fileName: document.file_name,
            open: (range) => objectsAs503(openObject(user, document, range), onObjectsAway),
          },
        };
      },
    }),
  ];
}

type UploadRequest = OperationRequest<
  z.output<typeof params>,
  unknown,
  unknown,
  HandlerCode | "document_already_uploaded"
>;

/** As long as its bytes come, whoever sends them has to be allowed to: that is hours. */
async function findUploadable(request: UploadRequest, tx: ClientBase, find: typeof lockDocument) {
  if (!(await isApiKeyValid(tx, request.caller.keyId))) throw new Problem("unauthorized");
  return await requireUploadable(request, tx, find);
}

async function requireUploadable<On>(
  request: UploadRequest,
  database: On,
  find: (database: On, user: SpaceUser, documentId: string) => Promise<FoundDocument | null>,
): Promise<FoundDocument> {
  const found = find(database, request.user, request.params.document_id);
  const document = await requirePermission(request, "upload", found);
  if (document.has_content) throw request.problem("document_already_uploaded");
  return document;
}

/** What is wrong with a body, for all that is known before it comes. */
function faultsOf({ bytes, mediaType }: AnnouncedBody, { file_size, content_type }: FoundDocument) {
  const faults: FieldError[] = [];
  const length = `Must be ${file_size}, the document's file_size.`;
  const type = `Must be ${content_type}, the document's content_type.`;
  if (bytes !== file_size) faults.push({ path: "header.content-length", message: length });
  if (mediaType !== content_type) faults.push({ path: "header.content-type", message: type });
  return faults;
}
