import { z } from "zod";
import { operationDefiners } from "../../src/api/define-operation.ts";
import type { Operation } from "../../src/api/operation.ts";
import { bytesAnswer, emptyAnswer, jsonAnswer, jsonBody, rawBody } from "../../src/api/operation-io.ts";
import { operationsList } from "../../src/api/operations-list.ts";
import {
  createCursors,
  pageOf,
  pageQuery,
  totalCappedHeader,
  totalHeaders,
} from "../../src/api/pagination.ts";
import type { ProblemCatalogue } from "../../src/api/problems.ts";
import { createLockOperations } from "./api-locks.ts";
import type { ToyTx } from "./api-toy-stores.ts";

export const boxProblems = {
  box_sealed: {
    status: 409,
    title: "Box sealed",
    meaning: "The box is sealed & cannot be <opened>.",
    remedy: "Take another box.",
  },
  box_gone: {
    status: 410,
    title: "Box gone",
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

export type Boxes = {
  readonly rows: Map<string, Box & { readonly accountId: string }>;
  readonly texts: Map<string, Buffer>;
  /** How often `boxes.weigh` called out. */
  calls: number;
  /** What handlers wait for. */
  gate: () => Promise<void>;
};

/** A small API of every kind of operation that the kernel knows. */
export function createBoxOperations(boxes: Boxes): readonly Operation<ToyTx>[] {
  const { read, write, callOut } = operationDefiners<ToyTx, keyof typeof boxProblems>();
  const cursors = createCursors(z.string());
  const own = (accountId: string): Box[] =>
    [...boxes.rows.values()]
      .filter((box) => box.accountId === accountId)
      .map(({ accountId: _, ...box }) => box)
      .sort((one, other) => (one.id < other.id ? -1 : 1));
  const find = (accountId: string, id: string): Box | null =>
    own(accountId).find((box) => box.id === id) ?? null;
  const put = (tx: ToyTx, accountId: string, box: Box): void => {
    const before = boxes.rows.get(box.id);
    boxes.rows.set(box.id, { ...box, accountId });
    tx.undo.push(() => (before ? boxes.rows.set(box.id, before) : boxes.rows.delete(box.id)));
  };
  const made_at = "2026-01-02T03:04:05.678Z";
  const tag = "Boxes";

  const operations = [
    read({
      key: "boxes.list",
      tag,
      summary: "List the boxes",
      description: "List the boxes, for a test.",
      method: "GET",
      path: "/v1/boxes",
      scope: "boxes:read",
      query: z.strictObject({
        ...pageQuery,
        color: Color.optional(),
        heavier_than: z.number().optional(),
        is_weighed: z.boolean().optional(),
        id: z.array(boxId).max(5).optional(),
      }),
      answer: jsonAnswer(200, pageOf(Box), totalCappedHeader),
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
        const items = rest.slice(0, limit);
        const last = items.at(-1);
        const next_cursor =
          last && rest.length > limit ? cursors.write(last.id, { accountId, ...filter }) : null;
        const body = { items, next_cursor, total: Math.min(matching.length, 1000) };
        return { body, headers: totalHeaders(matching.length > 1000) };
      },
    }),
    read({
      key: "boxes.get",
      tag,
      summary: "Read a box",
      description: "Read a box, for a test.",
      method: "GET",
      path: "/v1/boxes/{box_id}",
      scope: "boxes:read",
      params: z.strictObject({ box_id: boxId }),
      answer: jsonAnswer(200, Box),
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
      key: "boxes.create",
      tag,
      summary: "Make a box",
      description: "Make a box, for a test.",
      method: "POST",
      path: "/v1/boxes",
      scope: "boxes:write",
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      body: jsonBody(NewBox),
      answer: jsonAnswer(201, Box, { Location: "Where the box is." }),
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
      key: "boxes.remove",
      tag,
      summary: "Throw a box away",
      description: "Throw a box away, for a test.",
      method: "DELETE",
      path: "/v1/boxes/{box_id}",
      scope: "boxes:write",
      risk: "irreversible",
      mode: "sync",
      idempotency: "key_required",
      params: z.strictObject({ box_id: boxId }),
      answer: emptyAnswer(),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }, tx) => {
        const row = boxes.rows.get(params.box_id);
        if (!row || row.accountId !== accountId) throw problem("not_found");
        boxes.rows.delete(params.box_id);
        tx.undo.push(() => boxes.rows.set(params.box_id, row));
      },
    }),
    write({
      key: "boxes.text.set",
      tag,
      summary: "Keep a text in a box",
      description: "Keep a text in a box, for a test.",
      method: "PUT",
      path: "/v1/boxes/{box_id}/text",
      scope: "boxes:write",
      risk: "reversible",
      mode: "async",
      idempotency: "key_required",
      params: z.strictObject({ box_id: boxId }),
      body: rawBody({ documentedAs: z.looseObject({ id: z.string() }), bytesMax: 1000 }),
      answer: jsonAnswer(202, z.object({ bytes: z.int() })),
      handle: async ({ accountId, params, body, problem }) => {
        const message = mistakeIn(body);
        if (message) throw problem("invalid_request", [{ path: "body", message }]);
        boxes.texts.set(`${accountId}/${params.box_id}`, body);
        return { body: { bytes: body.length } };
      },
    }),
    read({
      key: "boxes.text.get",
      tag,
      summary: "Read the text of a box",
      description: "Read the text of a box, for a test.",
      method: "GET",
      path: "/v1/boxes/{box_id}/text",
      scope: "boxes:read",
      params: z.strictObject({ box_id: boxId }),
      answer: bytesAnswer({
        mediaType: "application/json",
        documentedAs: z.looseObject({ id: z.string() }).meta({ id: "Text" }),
      }),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }) => {
        const bytes = boxes.texts.get(`${accountId}/${params.box_id}`);
        if (!bytes) throw problem("not_found");
        return { bytes, etag: `text-${bytes.length}` };
      },
    }),
    callOut({
      key: "boxes.weigh",
      tag,
      summary: "Have the boxes weighed elsewhere",
      description: "Have the boxes weighed elsewhere, for a test.",
      method: "POST",
      path: "/v1/boxes/weigh",
      scope: "boxes:write",
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      callsOut: { deadlineMs: 10_000 },
      body: jsonBody(z.strictObject({ is_broken: z.boolean().default(false) }), { isOptional: true }),
      answer: jsonAnswer(200, z.object({ calls: z.int() })),
      errors: ["box_sealed"],
      handle: async ({ body, problem }) => {
        boxes.calls++;
        await boxes.gate();
        if (body.is_broken) throw problem("box_sealed");
        return { body: { calls: boxes.calls } };
      },
    }),
    ...createLockOperations(),
  ];
  return [...operations, operationsList(operations)];
}

/** A raw body is for its operation to judge. Null: it is as documented. */
function mistakeIn(body: Buffer): string | null {
  try {
    return z.looseObject({ id: z.string() }).safeParse(JSON.parse(body.toString())).success
      ? null
      : "Wants an id.";
  } catch {
    return "The body is not JSON.";
  }
}
