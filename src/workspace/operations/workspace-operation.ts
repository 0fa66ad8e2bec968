import type { Pool } from "pg";
import { z } from "zod";
import { id } from "../../api/fields.ts";
import type { UnsafeAllowedTargets } from "../../egress/rules/host.ts";
import { operationDefiners } from "../../http/define-operation.ts";
import type { Caller, HandlerCode, JudgeRepeat } from "../../http/operation.ts";
import type { FieldError, Problem } from "../../http/problems.ts";
import { allows, type SpacePermission, type SpaceRole } from "../model/roles.ts";
import type { ObjectStore, ObjectStoreAwayError } from "../objects/object-store.ts";
import { isMemberOf, NAMES_IN_SPACE, type StoredUser } from "../store/members.ts";
import type { SpaceUser } from "../store/spaces.ts";
import type { WorkspaceCode } from "./problems.ts";

export const User = z
  .object({ id, email: z.string(), name: z.string(), image_url: z.string().nullable() })
  .meta({ id: "User", description: "A person of the account." });

export function userBody({ id, email, name, imageUrl }: StoredUser): z.output<typeof User> {
  return { id, email, name, image_url: imageUrl };
}

/** As pages name who made them. */
export const Person = z.object({ id, name: z.string(), email: z.string() });

export function personBody({ id, name, email }: StoredUser): z.output<typeof Person> {
  return { id, name, email };
}

/** As documents and folders do. */
export const NamedUser = z.object({ id, name: z.string() });

export function namedUserBody({ id, name }: StoredUser): z.output<typeof NamedUser> {
  return { id, name };
}

/** The ways to declare an operation of the workspace. Of the webhooks' codes, its runs raise one. */
const declare = operationDefiners<WorkspaceCode | "target_refused">();
export const { read } = declare;

/** A repeat is answered to whoever is a member of the space still, unless the declaration says otherwise. */
export const write: typeof declare.write = (declaration) =>
  declare.write({ judgeRepeat: byMembership(declaration), ...declaration });
export const upload: typeof declare.upload = (declaration) =>
  declare.upload({ judgeRepeat: byMembership(declaration), ...declaration });

type Declared = {
  readonly key: string;
  readonly params?: z.ZodObject | undefined;
  readonly body?: unknown;
  readonly judgeRepeat?: unknown;
};

/** By what the path names, or the body. A write that names nothing in a space has to say by itself. */
function byMembership({ key, params, body, judgeRepeat }: Declared): JudgeRepeat<AnyRequest> {
  const name = NAMES_IN_SPACE.find((one) => params !== undefined && one in params.shape);
  const isInBody = hasSpaceId(body);
  if (name === undefined && !isInBody && judgeRepeat === undefined)
    throw new Error(`Operation ${key} names nothing in a space: it has to say to whom a repeat is answered.`);
  return async (request, tx) => {
    const named = (name === undefined ? request.body : request.params) as Readonly<Record<string, string>>;
    const isMember = await isMemberOf(tx, userOf(request), name ?? "space_id", named[name ?? "space_id"]!);
    return isMember ? "again" : "gone";
  };
}

type AnyRequest = {
  readonly accountId: string;
  readonly caller: Caller;
  readonly params: unknown;
  readonly body: unknown;
};

function hasSpaceId(body: unknown): boolean {
  const schema = (body as { readonly schema?: unknown } | undefined)?.schema;
  return schema instanceof z.ZodObject && "space_id" in schema.shape;
}

/** What the operations depend on. */
export type WorkspaceDependencies = {
  /** For reads: one statement each. Writes are given the connection of their transaction. */
  readonly pool: Pool;
  readonly objects: ObjectStore;
  /** Whoever asks then gets 503, and only this tells why. */
  readonly onObjectsAway: (error: ObjectStoreAwayError) => void;
  /** Where webhooks may go although it is private. */
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  /** The origin that links to pages lead to; null: they lead nowhere. */
  readonly pagesUrl: string | null;
};

/** The user that the caller acts for. The operation has declared `needsUser`. */
export function userOf({ accountId, caller }: { accountId: string; caller: Caller }): SpaceUser {
  if (caller.userId === null) throw new Error("An operation without `needsUser` asks for the user.");
  return { accountId, userId: caller.userId };
}

type Request = { problem(code: HandlerCode, errors?: readonly FieldError[]): Problem };

/** @throws Problem: not a member's space is no space, and a member's role may not be enough */
export function requirePermission(
  role: SpaceRole | null,
  permission: SpacePermission,
  { problem }: Request,
): asserts role is SpaceRole {
  if (role === null) throw problem("not_found");
  if (allows(role, permission)) return;
  const message = `Its user's role in the space, ${role}, is not enough.`;
  throw problem("access_denied", [{ path: "header.authorization", message }]);
}

/** Whoever saves or publishes has seen another revision than the one there is. */
export function draftIsAt(revision: number): readonly FieldError[] {
  return [{ path: "body.revision", message: `The draft is at revision ${revision}.` }];
}
