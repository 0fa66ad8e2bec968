import type { Pool } from "pg";
import { z } from "zod";
import type { CappedPage } from "../../base/model/list-page.ts";
import type { SecretsKey } from "../../base/model/secrets-key.ts";
import type { UnsafeAllowedTargets } from "../../egress/rules/host.ts";
import { operationDefiners } from "../../http/define-operation.ts";
import {
  type ErasedRequest,
  type HandlerCode,
  type JudgeRepeat,
  jsonResponse,
  type Operation,
} from "../../http/operation.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../../http/pagination.ts";
import type { FieldError, Problem } from "../../http/problems.ts";
import { allows, type SpacePermission, type SpaceRole } from "../model/roles.ts";
import type { ObjectStore, ObjectStoreAwayError } from "../objects/object-store.ts";
import { isMemberOf, NAMES_IN_SPACE } from "../store/spaces.ts";
import type { SpaceUser } from "../store/statements.ts";
import type { WorkspaceCode } from "./problems.ts";

type Telling<Told extends z.ZodType, Row> = Pick<
  Operation,
  "key" | "summary" | "description" | "path" | "scope"
> & {
  /** What is told of a row. */
  readonly bodyOf: (row: Row) => z.output<Told>;
};

type Listed<Told extends z.ZodType, Row, Position, Params, Filters> = Telling<Told, Row> & {
  readonly params?: z.ZodObject<Params & z.ZodRawShape, z.core.$strict>;
  /** Of the query, besides the page. */
  readonly filters?: Filters & z.ZodRawShape;
  readonly item: Told;
  readonly position: z.ZodType<Position>;
  /** Whether the total may be a lower bound. */
  readonly isCapped: boolean;
  /** Absent: 404 for whoever is no member. */
  readonly errors?: readonly [];
  /** Null: whoever asks is not told that there is such a list. @param from null: from its beginning */
  readonly readPage: (
    user: SpaceUser,
    asked: Asked<Params & Filters>,
    from: Position | null,
    limit: number,
  ) => Promise<CappedPage<Row, Position> | null>;
};

/** The parameters of a list's path, and its filters. */
type Asked<Shape> = { readonly [Name in keyof Shape]: z.output<Shape[Name]> };

/**
 * The ways to declare operations of the workspace, which are for keys that act for a user. Of the webhooks' codes, its
 * runs raise one; the platform's own is of quotas. @param tag their heading in the reference
 */
export function operationsOf(tag: string) {
  const declare = operationDefiners<WorkspaceCode | "target_refused" | "billing_credits_exhausted">(tag, {
    needsUser: true,
  });
  /** A repeat is answered to whoever is a member of the space still, unless the declaration says otherwise. */
  const write: typeof declare.write = (declaration) =>
    declare.write({ judgeRepeat: byMembership(declaration), ...declaration });
  const upload: typeof declare.upload = (declaration) =>
    declare.upload({ judgeRepeat: byMembership(declaration), ...declaration });

  /** A read of one thing, which whoever is no member of its space is not told of. */
  function get<Told extends z.ZodType, Row, Params extends z.ZodObject>({
    find,
    response,
    bodyOf,
    ...declared
  }: Telling<Told, Row> & {
    readonly params: Params;
    readonly response: Told;
    readonly find: (user: SpaceUser, params: z.output<Params>) => Promise<Row | null>;
  }): Operation {
    return declare.read({
      ...declared,
      response: jsonResponse(200, response),
      errors: ["not_found"],
      handle: async (request) => {
        const found = await find(request.user, request.params as z.output<Params>);
        if (found === null) throw request.problem("not_found");
        return { body: bodyOf(found) };
      },
    });
  }

  /** A read of a list, page by page. */
  function list<Told extends z.ZodType, Row, Position, Params = unknown, Filters = unknown>(
    declaration: Listed<Told, Row, Position, Params, Filters>,
  ): Operation {
    const { filters, item, position, isCapped, readPage, bodyOf, ...declared } = declaration;
    const cursors = createCursors(position);
    return declare.read({
      errors: ["not_found"],
      ...declared,
      query: z.strictObject({ ...filters, ...pageQuery }),
      response: jsonResponse(
        200,
        pageOf(item),
        (isCapped ? totalCappedHeader : {}) as typeof totalCappedHeader,
      ),
      handle: async (request) => {
        const { user } = request;
        const { cursor, limit, ...query } = request.query as PageQuery;
        const asked = { ...request.params, ...query } as Asked<Params & Filters>;
        const filter = [user, asked];
        const page = await readPage(user, asked, cursors.read(cursor, filter), limit);
        if (page === null) throw request.problem("not_found" as never);
        return { body: cursors.pageBody(page, filter, bodyOf), headers: totalHeaders(page) };
      },
    });
  }

  return { read: declare.read, get, list, write, upload };
}

type PageQuery = { readonly cursor?: string; readonly limit: number };

type Declared = {
  readonly key: string;
  readonly params?: z.ZodObject | undefined;
  readonly body?: unknown;
  readonly judgeRepeat?: unknown;
  readonly holdsSecret?: true;
};

type AnyRequest = Pick<ErasedRequest, "user" | "params" | "body">;

/** By what the path names, or the body. A write that names nothing in a space, or tells a secret, says by itself. */
function byMembership({ key, params, body, judgeRepeat, holdsSecret }: Declared): JudgeRepeat<AnyRequest> {
  const inPath = NAMES_IN_SPACE.find((one) => params !== undefined && one in params.shape);
  const { schema } = (body ?? {}) as { readonly schema?: unknown };
  const isInBody = schema instanceof z.ZodObject && "space_id" in schema.shape;
  if ((holdsSecret || (inPath === undefined && !isInBody)) && judgeRepeat === undefined)
    throw new Error(
      `Operation ${key} names nothing in a space, or tells a secret: who is answered a repeat?`,
    );
  return async (request, tx) => {
    const named = (inPath === undefined ? request.body : request.params) as Readonly<Record<string, string>>;
    const name = inPath ?? "space_id";
    return (await isMemberOf(tx, request.user, name, named[name]!)) ? "again" : "gone";
  };
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
  /** Where clients reach the API. */
  readonly publicUrl: string;
  /** With which the secrets of hooks are sealed. */
  readonly secretsKey: SecretsKey;
};

type Request = { problem(code: HandlerCode, errors?: readonly FieldError[]): Problem };

/**
 * What was found with the role of whoever asks.
 * @throws Problem: what is in a space does not exist for others than its members, whose role may not be enough
 */
export async function requirePermission<Found extends { readonly role: SpaceRole }>(
  { problem }: Request,
  permission: SpacePermission,
  finding: Promise<Found | null>,
): Promise<Found> {
  const found = await finding;
  if (found === null) throw problem("not_found");
  const { role } = found;
  if (allows(role, permission)) return found;
  const message = `Its user's role in the space, ${role}, is not enough.`;
  throw problem("access_denied", [{ path: "header.authorization", message }]);
}

/** Whoever saves or publishes has seen another revision than the one there is. */
export function draftIsAt(revision: number): readonly FieldError[] {
  return [{ path: "body.revision", message: `The draft is at revision ${revision}.` }];
}
