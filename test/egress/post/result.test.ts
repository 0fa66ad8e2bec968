import { fc, it } from "@fast-check/vitest";
import { describe, expect } from "vitest";
import { excerptOf, recordableText, recordedHeaders, retryAfterOf } from "../../../src/egress/post/result.ts";

function excerpt(bytes: Buffer | string, more: { isCut?: boolean; headers?: Record<string, string> } = {}) {
  const body = Buffer.from(bytes as string);
  const { isCut = false, headers = {} } = more;
  return excerptOf({ chunks: [body.subarray(0, 1_024)], bytesCount: body.length, isCut }, headers, 1_024);
}

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

describe("recordable text", () => {
  it("loses control characters but line feed and tab", () => {
    const all = Array.from({ length: 0x120 }, (_, code) => String.fromCharCode(code));
    const kept = all.filter((character) => recordableText(`a${character}b`) !== "ab");
    const lost = all
      .filter((character) => !kept.includes(character))
      .map((character) => character.charCodeAt(0));
    expect(lost).toEqual([...range(0, 8), ...range(11, 31), ...range(0x7f, 0x9f)]);
  });

  it("loses lone surrogates and keeps pairs", () => {
    expect(recordableText("a\ud800b\udc00c\u{1f600}")).toBe("abc\u{1f600}");
  });

  it.prop([fc.string({ unit: "binary" })])("is always well formed and free of NUL", (text) => {
    const kept = recordableText(text);
    expect(kept.isWellFormed()).toBe(true);
    expect(kept.includes("\u0000")).toBe(false);
    expect(recordableText(kept)).toBe(kept);
  });
});

describe("the excerpt of a body", () => {
  it("is the text itself if it is short", () => {
    expect(excerpt('{"ok":true}')).toBe('{"ok":true}');
    expect(excerpt("x".repeat(1_024))).toBe("x".repeat(1_024));
  });

  it("is null for an empty body", () => {
    expect(excerpt("")).toBeNull();
  });

  it("says that there was more", () => {
    expect(excerpt("x".repeat(1_025))).toBe(`${"x".repeat(1_021)}…`);
  });

  it("says that the answer broke off, even before its first byte", () => {
    expect(excerpt("begun", { isCut: true })).toBe("begun… [cut off]");
    expect(excerpt("", { isCut: true })).toBe("… [cut off]");
  });

  it("cuts no character in half", () => {
    expect(excerpt("é".repeat(600))).toBe(`${"é".repeat(510)}…`);
    expect(excerpt(`x${"\u{1f600}".repeat(300)}`)).toBe(`x${"\u{1f600}".repeat(255)}…`);
  });

  it("does not show compressed bytes", () => {
    expect(excerpt("\u001f\u008bzzzz", { headers: { "content-encoding": "gzip" } })).toBe(
      "[compressed: gzip]",
    );
    expect(excerpt("plain", { headers: { "content-encoding": "identity" } })).toBe("plain");
  });

  it.prop([fc.uint8Array({ maxLength: 3_000 }), fc.boolean()])(
    "is storable and small, whatever the bytes",
    (bytes, isCut) => {
      const text = excerpt(Buffer.from(bytes), { isCut }) ?? "";
      expect(Buffer.byteLength(text)).toBeLessThanOrEqual(1_024);
      expect(recordableText(text)).toBe(text);
    },
  );
});

describe("the recorded headers", () => {
  it("are the known ones, bounded and storable", () => {
    const recorded = recordedHeaders({
      server: `a\u0000b\u001b[31m${"x".repeat(2_000)}`,
      location: "https://example.com/new",
      "set-cookie": ["session=secret"],
      authorization: "secret",
      via: ["one", "two"] as unknown as string,
    });
    expect(Object.keys(recorded ?? {}).sort()).toEqual(["location", "server", "via"]);
    expect(recorded?.server).toMatch(/^ab\[31mx+$/);
    expect(recorded?.server?.length).toBeLessThanOrEqual(500);
    expect(recorded?.via).toBe("one, two");
  });

  it("are null if there are none", () => {
    expect(recordedHeaders({ "x-powered-by": "x" })).toBeNull();
  });

  it("pass Retry-After on unjudged, but bounded", () => {
    expect(retryAfterOf({})).toBeNull();
    expect(retryAfterOf({ "retry-after": "-5 garbage" })).toBe("-5 garbage");
    expect(retryAfterOf({ "retry-after": "9".repeat(5_000) })).toHaveLength(200);
  });
});
