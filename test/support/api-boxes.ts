import { z } from "zod";
import { cutPage } from "../../src/base/model/list-page.ts";
import { operationDefiners } from "../../src/http/define-operation.ts";
import {
  bytesResponse,
  eitherResponse,
  emptyResponse,
  jsonBody,
  jsonResponse,
  type Operation,
  rawBody,
  type Transaction,
} from "../../src/http/operation.ts";
import { operationsList } from "../../src/http/operations-list.ts";
import {
  createCursors,
  pageOf,
  pageQuery,
  totalCappedHeader,
  totalHeaders,
} from "../../src/http/pagination.ts";
import type { ProblemCatalogue } from "../../src/http/problems.ts";
import { type BoxFiles, createFileOperations } from "./api-box-files.ts";
import { toyTx } from "./api-toy-stores.ts";

export const boxProblems = {
  box_sealed: {
    status: 409,
    meaning: "The box is sealed & cannot be <opened>.",
    remedy: "Take another box.",
  },
  box_gone: {
    status: 410,
    meaning: "The box has been thrown away.",
    remedy: "Take another box.",
  },
} as const satisfies ProblemCatalogue;

const Color = z.enum(["red", "blue"]).meta({ id: "Color", description: "What a box can be painted in." });
const Box = z
  .object({
    id: z.string(),
    color: Color,
    weight: z.int().nullable(),
    made_at: z.iso.datetime({ precision: 3 }),
  })
  .meta({ id: "Box", description: "Something to put things in." });
const NewBox = z.strictObject({
  color: Color,
  weight: z.int().min(1).max(1000).nullable().default(null),
  note: z.string().max(100).optional(),
});
const boxId = z.string().regex(/^[a-z0-9-]{1,40}$/);

type Box = z.output<typeof Box>;

export type Boxes = BoxFiles & {
  readonly rows: Map<string, Box & { readonly accountId: string }>;
  readonly texts: Map<string, Buffer>;
  /** How often `boxes.weigh` called out. */
  calls: number;
  /** What handlers wait for. */
  gate: () => Promise<void>;
};

const writing = { risk: "reversible", mode: "sync" } as const;

const named = (
  key: `${"boxes" | "locks"}.${string}`,
  summary: string,
  path: `/v1/${string}`,
  scope: `${string}:${string}`,
) => ({
  ...{ key, summary, path, scope },
  description: `${summary}, for a test.`,
});

/** A small API with every kind of operation that the kernel knows. */
export function createBoxOperations(boxes: Boxes): readonly Operation[] {
  const { read, write, callOut } = operationDefiners<keyof typeof boxProblems>("Boxes");
  const ofLocks = operationDefiners<keyof typeof boxProblems>("Locks");
  const cursors = createCursors(z.string());
  const own = (accountId: string): Box[] =>
    [...boxes.rows.values()]
      .filter((box) => box.accountId === accountId)
      .map(({ accountId: _, ...box }) => box)
      .sort((one, other) => (one.id < other.id ? -1 : 1));
  const find = (accountId: string, id: string): Box | null =>
    own(accountId).find((box) => box.id === id) ?? null;
  const put = (tx: Transaction, accountId: string, box: Box): void => {
    const before = boxes.rows.get(box.id);
    boxes.rows.set(box.id, { ...box, accountId });
    toyTx(tx).undo.push(() => (before ? boxes.rows.set(box.id, before) : boxes.rows.delete(box.id)));
  };
  const made_at = "2026-01-02T03:04:05.678Z";

  const operations = [
    read({
      ...named("boxes.list", "List the boxes", "/v1/boxes", "boxes:read"),
      query: z.strictObject({
        ...pageQuery,
        color: Color.optional(),
        heavier_than: z.number().optional(),
        is_weighed: z.boolean().optional(),
        id: z.array(boxId).max(5).optional(),
      }),
      response: jsonResponse(200, pageOf(Box), totalCappedHeader),
      handle: async ({ accountId, query }) => {
        await boxes.gate();
        const { cursor, limit, ...filter } = query;
        const after = cursors.read(cursor, { accountId, ...filter });
        const matching = own(accountId).filter(
          (box) =>
            (filter.color === undefined || box.color === filter.color) &&
            (filter.heavier_than === undefined || (box.weight ?? 0) > filter.heavier_than) &&
            (filter.is_weighed === undefined || (box.weight !== null) === filter.is_weighed) &&
            (filter.id === undefined || filter.id.includes(box.id)),
        );
        const rest = matching.filter((box) => after === null || box.id > after);
        const total = { total: Math.min(matching.length, 1000), isTotalCapped: matching.length > 1000 };
        const page = { ...cutPage(rest, limit, (box) => box.id), ...total };
        const body = cursors.pageBody(page, { accountId, ...filter }, (box) => box);
        return { body, headers: totalHeaders(page) };
      },
    }),
    read({
      ...named("boxes.get", "Read a box", "/v1/boxes/{box_id}", "boxes:read"),
      params: z.strictObject({ box_id: boxId }),
      response: jsonResponse(200, Box),
      errors: ["not_found", "box_gone"],
      handle: async ({ accountId, params, problem }) => {
        await boxes.gate();
        if (params.box_id === "gone") throw problem("box_gone");
        const box = find(accountId, params.box_id);
        if (!box) throw problem("not_found");
        return { body: box };
      },
    }),
    write({
      ...named("boxes.create", "Make a box", "/v1/boxes", "boxes:write"),
      method: "POST",
      ...writing,
      body: jsonBody(NewBox),
      audit: ({ body }, result) => ({ color: body.color, box_id: result.body.id }),
      response: jsonResponse(201, Box, { Location: "Where the box is." }),
      errors: ["box_sealed"],
      handle: async ({ accountId, body, problem }, tx) => {
        const id = `box-${boxes.rows.size + 1}`;
        put(tx, accountId, { id, color: body.color, weight: body.weight, made_at });
        await boxes.gate();
        if (body.note === "sealed") throw problem("box_sealed");
        const box = find(accountId, id);
        if (!box) throw new Error("The box that was just made is not there.");
        return { body: box, headers: { Location: `/v1/boxes/${id}` } };
      },
    }),
    write({
      ...named("boxes.remove", "Throw a box away", "/v1/boxes/{box_id}", "boxes:write"),
      method: "DELETE",
      ...writing,
      risk: "irreversible",
      params: z.strictObject({ box_id: boxId }),
      audit: ({ params }) => ({ box_id: params.box_id }),
      response: emptyResponse(),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }, tx) => {
        const row = boxes.rows.get(params.box_id);
        if (!row || row.accountId !== accountId) throw problem("not_found");
        boxes.rows.delete(params.box_id);
        toyTx(tx).undo.push(() => boxes.rows.set(params.box_id, row));
      },
    }),
    write({
      ...named("boxes.text.set", "Keep a text in a box", "/v1/boxes/{box_id}/text", "boxes:write"),
      method: "PUT",
      ...writing,
      mode: "async",
      params: z.strictObject({ box_id: boxId }),
      body: rawBody({ documentedAs: z.looseObject({ id: z.string() }), bytesMax: 1000 }),
      audit: { elsewhere: "nowhere: it is a test" },
      response: jsonResponse(202, z.object({ bytes: z.int() })),
      handle: async ({ accountId, params, body, problem }) => {
        const message = mistakeIn(body);
        if (message) throw problem("invalid_request", [{ path: "body", message }]);
        boxes.texts.set(`${accountId}/${params.box_id}`, body);
        return { body: { bytes: body.length } };
      },
    }),
    read({
      ...named("boxes.text.get", "Read the text of a box", "/v1/boxes/{box_id}/text", "boxes:read"),
      params: z.strictObject({ box_id: boxId }),
      response: bytesResponse({
        mediaType: "application/json",
        documentedAs: z.looseObject({ id: z.string() }).meta({ id: "Text" }),
      }),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }) => {
        const bytes = boxes.texts.get(`${accountId}/${params.box_id}`);
        if (!bytes) throw problem("not_found");
        return { bytes };
      },
    }),
    callOut({
      ...named("boxes.weigh", "Have the boxes weighed elsewhere", "/v1/boxes/weigh", "boxes:write"),
      method: "POST",
      ...writing,
      callsOut: { deadlineMs: 10_000 },
      audit: (_, result) => ({ calls: result.body.calls }),
      body: jsonBody(z.strictObject({ is_broken: z.boolean().default(false) }), { isOptional: true }),
      response: jsonResponse(200, z.object({ calls: z.int() })),
      errors: ["box_sealed"],
      handle: async ({ body, problem }) => {
        boxes.calls++;
        await boxes.gate();
        if (body.is_broken) throw problem("box_sealed");
        return { body: { calls: boxes.calls } };
      },
    }),
    ofLocks.write({
      ...named("locks.oil", "Oil the locks", "/v1/locks/oil", "locks:write"),
      method: "POST",
      ...writing,
      mode: "async",
      body: jsonBody(z.strictObject({ dry_run: z.boolean().default(false) })),
      audit: (_, result) => ("other" in result ? null : {}),
      response: eitherResponse(jsonResponse(202, z.object({ started: z.boolean() })), {
        status: 200,
        schema: z.object({ locks: z.int() }),
        description: "With `dry_run`: deliveries counted, none replayed.",
      }),
      handle: async ({ body }) => (body.dry_run ? { other: { locks: 2 } } : { body: { started: true } }),
    }),
    ofLocks.write({
      ...named(
        "locks.combination.rotate",
        "Change the combination",
        "/v1/locks/combination/rotate",
        "locks:write",
      ),
      method: "POST",
      ...writing,
      risk: "irreversible",
      holdsSecret: true,
      audit: () => ({}),
      response: jsonResponse(200, z.object({ combination: z.string() })),
      handle: async () => ({ body: { combination: "1-2-3" } }),
    }),
    ofLocks.read({
      ...named("locks.old_list", "List the locks as before", "/v1/locks", "locks:read"),
      deprecated: { at: "2023-07-01T00:00:00Z", sunsetAt: "2030-06-30T23:59:59Z" },
      response: jsonResponse(200, z.object({ locks: z.array(z.string()) })),
      handle: async () => ({ body: { locks: ["front", "back"] } }),
    }),
    ofLocks.retired({
      ...named("locks.pick", "Pick a lock", "/v1/locks/{lock_id}/pick", "locks:write"),
      method: "POST",
      risk: "irreversible",
      mode: "sync",
      deprecated: { at: "2020-01-01", sunsetAt: "2021-01-01" },
    }),
  ];
  operations.push(...createFileOperations(boxes, (accountId, id) => find(accountId, id) !== null));
  return [...operations, operationsList(operations)];
}

/** Raw bodies are validated by their operation. Null: as documented. */
function mistakeIn(body: Buffer): string | null {
  try {
    return z.looseObject({ id: z.string() }).safeParse(JSON.parse(body.toString())).success
      ? null
      : "Wants an id.";
  } catch {
    return "The body is not valid JSON.";
  }
}
