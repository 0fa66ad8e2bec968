import type { ClientBase } from "pg";
import { z } from "zod";
import { id } from "../../api/fields.ts";
import { jsonResponse, type Operation } from "../../http/operation.ts";
import { BIN_DAYS, BinItem, DELETED_AT_ONCE_MAX } from "../model/bin.ts";
import { Document, Folder } from "../model/documents.ts";
import { Page } from "../model/pages.ts";
import type { SpaceRole } from "../model/roles.ts";
import { Space } from "../model/spaces.ts";
import { Workflow } from "../model/workflows.ts";
import {
  type Deleted,
  deleteForGood,
  findBinItem,
  type ItemIds,
  isMemberAnyway,
  listBin,
  lockBinItem,
  moveToBin,
  restoreFromBin,
  type StoredBinItem,
} from "../store/bin.ts";
import { findDocument, findFolder, lockDocument } from "../store/documents.ts";
import { findPage, lockPage } from "../store/pages.ts";
import { findSpace, lockSpace } from "../store/spaces.ts";
import type { SpaceUser } from "../store/statements.ts";
import { findWorkflow, lockWorkflow } from "../store/workflows.ts";
import { documentBody } from "./documents.ts";
import { pageBody } from "./pages.ts";
import type { WorkspaceCode } from "./problems.ts";
import { spaceBody } from "./spaces.ts";
import { workflowBody } from "./workflows.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

const AT_ONCE_MAX = DELETED_AT_ONCE_MAX.toLocaleString("en");

/** A kind of things that can be deleted. */
type Deletable = {
  readonly kind: Deleted["kind"];
  readonly tag: string;
  readonly path: `/v1/${string}`;
  readonly scope: `${string}:write`;
  /** What goes with it, as sentences. */
  readonly about: string;
  readonly errors: { readonly delete: readonly WorkspaceCode[]; readonly restore: readonly WorkspaceCode[] };
  readonly response: z.ZodType;
  /** Locks it, or its space. Null: there is no such thing, or the user is not a member of its space. */
  readonly lock: (tx: ClientBase, user: SpaceUser, ids: ItemIds) => Promise<FoundToDelete | null>;
  /** What is told of it once it is restored. */
  readonly tell: (tx: ClientBase, user: SpaceUser, ids: ItemIds) => Promise<unknown>;
};
type FoundToDelete = Pick<Deleted, "name" | "space_id"> & { readonly role: SpaceRole };

const DELETABLE: readonly Deletable[] = [
  {
    kind: "space",
    tag: "Spaces",
    path: "/v1/spaces/{space_id}",
    scope: "spaces:write",
    about:
      "All that is in it goes with it. Links to its pages are closed for good. Runs of its workflows go on, and no " +
      `other begins. 409 if more than ${AT_ONCE_MAX} links to its pages are not revoked.`,
    errors: { delete: ["too_much_to_delete"], restore: [] },
    response: Space,
    lock: async (tx, user, { space_id }) => {
      const locked = await lockSpace(tx, user, space_id);
      return locked && { ...locked, space_id, name: (await findSpace(tx, user, space_id))!.name };
    },
    tell: async (tx, user, { space_id }) => spaceBody((await findSpace(tx, user, space_id))!),
  },
  {
    kind: "folder",
    tag: "Documents",
    path: "/v1/spaces/{space_id}/folders/{folder_id}",
    scope: "documents:write",
    about:
      "All that is in it goes with it, and comes back with it. 409 if that is more than " +
      `${AT_ONCE_MAX} folders and documents.`,
    errors: { delete: ["too_much_to_delete"], restore: ["folder_name_taken"] },
    response: Folder,
    lock: async (tx, user, { space_id, folder_id }) => {
      const space = await lockSpace(tx, user, space_id);
      const folder = space && (await findFolder(tx, user.accountId, space_id, folder_id));
      return folder && { ...folder, role: space.role };
    },
    tell: (tx, { accountId }, { space_id, folder_id }) => findFolder(tx, accountId, space_id, folder_id),
  },
  {
    kind: "document",
    tag: "Documents",
    path: "/v1/documents/{document_id}",
    scope: "documents:write",
    about: "An upload of its content in progress ends.",
    errors: { delete: [], restore: ["document_name_taken"] },
    response: Document,
    lock: async (tx, user, { document_id }) => {
      const found = await lockDocument(tx, user, document_id);
      return found && { ...found, name: found.file_name };
    },
    tell: async (tx, user, { document_id }) => documentBody((await findDocument(tx, user, document_id))!),
  },
  {
    kind: "page",
    tag: "Pages",
    path: "/v1/pages/{page_id}",
    scope: "pages:write",
    about:
      "Its links are closed at once, and for good: when it is restored, they are `REVOKED`. 409 if more than " +
      `${AT_ONCE_MAX} are not.`,
    errors: { delete: ["too_much_to_delete"], restore: [] },
    response: Page,
    lock: async (tx, user, { page_id }) => {
      const found = await lockPage(tx, user, page_id);
      return found && { ...found, name: found.title };
    },
    tell: async (tx, user, { page_id }) => pageBody((await findPage(tx, user, page_id))!),
  },
  {
    kind: "workflow",
    tag: "Workflows",
    path: "/v1/workflows/{workflow_id}",
    scope: "workflows:write",
    about: "Its runs go on, and no other begins.",
    errors: { delete: [], restore: [] },
    response: Workflow,
    lock: (tx, user, { workflow_id }) => lockWorkflow(tx, user, workflow_id),
    tell: async (tx, user, { workflow_id }) => workflowBody((await findWorkflow(tx, user, workflow_id))!),
  },
];

/** Deleting, restoring, and what can be restored. */
export function binOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  return [
    operationsOf("Spaces").list({
      key: "spaces.bin.list",
      summary: "List what was deleted in a space",
      description:
        "What can be restored of what was deleted in the space, and the space itself, if it was deleted: the newest " +
        "first. What went with something else is not listed. 404 if you are not a member.",
      path: "/v1/spaces/{space_id}/bin",
      scope: "spaces:read",
      params: z.strictObject({ space_id: id }),
      item: BinItem,
      position: id,
      isCapped: true,
      readPage: (user, { space_id }, below, limit) => listBin(pool, user, [space_id], below, limit),
      bodyOf: binItemBody,
    }),
    ...DELETABLE.flatMap((deletable) => [deleting(deletable), restoring(deletable)]),
  ];
}

const paramsOf = (path: string) =>
  z.strictObject(Object.fromEntries([...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => [name!, id])));

function deleting({ kind, tag, path, scope, about, errors, lock }: Deletable): Operation {
  return operationsOf(tag).write({
    key: `${kind}s.delete`,
    summary: `Delete a ${kind}`,
    description:
      `Brings the ${kind} to the bin: to everything else it no longer exists, and it can be restored for ${BIN_DAYS} ` +
      `days. ${about} With \`permanently\`, it cannot be restored; what is in the bin can be deleted so, too. For ` +
      "members who may delete: others get 403.",
    method: "DELETE",
    path,
    scope,
    params: paramsOf(path),
    query: z.strictObject({
      permanently: z
        .boolean()
        .optional()
        .describe("True: for good, now. What was stored is removed within minutes."),
    }),
    audit: ({ params, query }, { body: { space_id, name } }) => {
      return { ...params, space_id, name, permanently: query.permanently ?? false };
    },
    // Its members still are when it is in the bin.
    ...(kind === "space" && {
      judgeRepeat: async (
        { user, params }: { readonly user: SpaceUser; readonly params: unknown },
        tx: ClientBase,
      ) =>
        (await isMemberAnyway(tx, user, (params as ItemIds).space_id))
          ? ("again" as const)
          : ("gone" as const),
    }),
    response: jsonResponse(200, BinItem),
    errors: ["not_found", "access_denied", ...errors.delete],
    handle: async (request, tx) => {
      const { user, query } = request;
      const ids = request.params as ItemIds;
      const itemId = ids[`${kind}_id`];
      const found = await lock(tx, user, ids);
      let binId: string | null;
      if (found === null && query.permanently) {
        binId = (await requirePermission(request, "delete", lockBinItem(tx, user, kind, ids))).binId;
      } else {
        const { name, space_id } = await requirePermission(request, "delete", Promise.resolve(found));
        binId = await moveToBin(tx, user, { kind, id: itemId, space_id, name });
        if (binId === null) throw request.problem("too_much_to_delete");
      }
      if (query.permanently) await deleteForGood(tx, user.accountId, binId);
      return { body: binItemBody((await findBinItem(tx, user.accountId, binId))!) };
    },
  });
}

function restoring({ kind, tag, path, scope, errors, response, tell }: Deletable): Operation {
  const isPlaced = errors.restore.length > 0;
  return operationsOf(tag).write({
    risk: "reversible",
    key: `${kind}s.restore`,
    summary: `Restore a ${kind}`,
    description:
      `Brings the ${kind} back from the bin, with all that went there with it. ` +
      (isPlaced
        ? "It is where it was, or at the top of the space, if its folder is not there. 409 if something else has its " +
          "name there. "
        : "") +
      "404 if it is not in the bin any more. For members who may delete: others get 403.",
    method: "POST",
    path: `${path}/restore`,
    scope,
    params: paramsOf(path),
    audit: ({ params }, { audited }) => ({ ...params, ...audited }),
    response: jsonResponse(200, response),
    errors: ["not_found", "access_denied", ...errors.restore],
    handle: async (request, tx) => {
      const { user } = request;
      const ids = request.params as ItemIds;
      const item = await requirePermission(request, "delete", lockBinItem(tx, user, kind, ids));
      if (!(await restoreFromBin(tx, user, item))) throw request.problem(errors.restore[0]!);
      return { body: await tell(tx, user, ids), audited: { space_id: item.space_id, name: item.name } };
    },
  });
}

function binItemBody({ binId: _, ...item }: StoredBinItem): BinItem {
  return item;
}
