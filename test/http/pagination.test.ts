import { fc, test as property } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { createCursors, totalHeaders } from "../../src/http/pagination.ts";
import { ADA, BOB, createToyApi, type ToyApi } from "../support/api-toy-server.ts";

const cursors = createCursors(z.tuple([z.iso.datetime(), z.string()]));
const refused = expect.objectContaining({ code: "invalid_request" });

describe("a cursor", () => {
  property.prop([
    fc.date({ noInvalidDate: true, min: new Date(0), max: new Date(1e13) }),
    fc.string(),
    fc.json(),
  ])("is read as it was written, and is short and opaque", (date, id, filter) => {
    const position: [string, string] = [date.toISOString(), id];
    const cursor = cursors.write(position, JSON.parse(filter));
    expect(cursor).toMatch(/^[\w-]+$/);
    expect(cursors.read(cursor, JSON.parse(filter))).toEqual(position);
  });

  property.prop([
    fc.oneof(
      fc.string(),
      fc.base64String(),
      fc.json().map((text) => Buffer.from(text).toString("base64url")),
    ),
  ])("that nobody wrote is refused", (cursor) => {
    expect(() => cursors.read(cursor, {})).toThrow(refused);
  });

  test("of other filters, of another account or with another position is refused", () => {
    const cursor = cursors.write(["2026-01-01T00:00:00.000Z", "a"], { accountId: ADA, status: "x" });
    expect(() => cursors.read(cursor, { accountId: ADA })).toThrow(refused);
    expect(() => cursors.read(cursor, { accountId: BOB, status: "x" })).toThrow(refused);
    const [version, digest] = JSON.parse(Buffer.from(cursor, "base64url").toString());
    const forge = (...parts: unknown[]) => Buffer.from(JSON.stringify(parts)).toString("base64url");
    for (const forged of [
      forge(version, digest, ["yesterday", "a"]),
      forge(version, digest, ["2026-01-01T00:00:00.000Z", 1]),
      forge(version, digest),
      forge(2, digest, ["2026-01-01T00:00:00.000Z", "a"]),
    ]) {
      expect(() => cursors.read(forged, { accountId: ADA, status: "x" })).toThrow(refused);
    }
  });

  test("absent is the first page", () => {
    expect(cursors.read(undefined, {})).toBeNull();
  });
});

describe("a total", () => {
  test("says when it is only a lower bound", () => {
    expect(totalHeaders({ isTotalCapped: true })).toEqual({ "Total-Capped": "true" });
    expect(totalHeaders({ isTotalCapped: false })).toEqual({});
  });
});

describe("a list", () => {
  const made_at = "2026-01-02T03:04:05.678Z";
  const add = (api: ToyApi, id: string, color: "red" | "blue") =>
    api.boxes.rows.set(id, { id, color, weight: null, made_at, accountId: ADA });
  type Page = { items: { id: string }[]; next_cursor: string | null; total: number; code?: string };

  test("is walked page by page: none twice, none missed, while boxes are added", async () => {
    const api = await createToyApi();
    for (let number = 100; number < 225; number++) add(api, `b-${number}`, number % 5 === 0 ? "red" : "blue");
    const get = async (query: string) => {
      const response = await api.app.inject({
        url: `/v1/boxes${query}`,
        headers: { authorization: `Bearer ${api.key}` },
      });
      const page: Page = response.json();
      return { status: response.statusCode, page, capped: response.headers["total-capped"] };
    };
    const { page: first } = await get("");
    expect([first.items.length, first.total]).toEqual([50, 125]);

    const seen: string[] = [];
    let query = "?color=blue&limit=7";
    for (;;) {
      const { status, page } = await get(query);
      expect(status).toBe(200);
      seen.push(...page.items.map(({ id }) => id));
      add(api, `a-${seen.length}`, "blue");
      if (page.next_cursor === null) break;
      query = `?color=blue&limit=7&cursor=${page.next_cursor}`;
    }
    expect(seen).toHaveLength(100);
    expect(new Set(seen).size).toBe(100);

    const { next_cursor } = (await get("?color=blue")).page;
    for (const other of [`?cursor=${next_cursor}`, `?color=red&cursor=${next_cursor}`]) {
      expect(await get(other)).toMatchObject({
        status: 400,
        page: { code: "invalid_request", errors: [{ path: "query.cursor" }] },
      });
    }
    for (const wrong of ["?cursor=", `?cursor=${"x".repeat(2049)}`, "?cursor=*", "?limit=0", "?limit=101"]) {
      expect((await get(wrong)).status, wrong).toBe(400);
    }
    const longest = await get(`?cursor=${"x".repeat(2048)}`);
    expect(longest).toMatchObject({ page: { errors: [{ message: "Not a valid cursor for this list." }] } });

    for (let number = 1000; number < 2000; number++) add(api, `c-${number}`, "red");
    expect(await get("?color=red")).toMatchObject({ page: { total: 1000 }, capped: "true" });
    expect(await get("?color=blue")).toMatchObject({ status: 200, capped: undefined });
    await api.app.close();
  });
});
