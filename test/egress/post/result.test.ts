import { fc, it } from "@fast-check/vitest";
import { describe, expect } from "vitest";
import { ATTEMPT_ERROR_CODES, outcomeOfErrorCode } from "../../../src/base/model/error-codes.ts";
import {
  endWithAnswer,
  endWithError,
  excerptOf,
  recordableText,
  recordedHeaders,
  retryAfterOf,
} from "../../../src/egress/post/result.ts";

function excerpt(bytes: Buffer | string, more: { isCut?: boolean; headers?: Record<string, string> } = {}) {
  const body = Buffer.from(bytes as string);
  const { isCut = false, headers = {} } = more;
  return excerptOf({ chunks: [body.subarray(0, 1_024)], bytesCount: body.length, isCut }, headers, 1_024);
}

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

describe("how an attempt ended", () => {
  const body = { chunks: [Buffer.from("so far")], bytesCount: 6, isCut: true };

  it.each([200, 204, 299])("is a success with status %i, even of an answer that broke off", (statusCode) => {
    expect(endWithAnswer(statusCode, {}, body, 1_024)).toEqual({
      outcome: "succeeded",
      errorCode: null,
      statusCode,
      retryAfter: null,
      isRefusal: false,
      responseHeaders: null,
      responseExcerpt: "so far… [cut off]",
    });
  });

  it.each([300, 302, 404, 429, 500, 999])("is a rejection with status %i", (statusCode) => {
    expect(endWithAnswer(statusCode, { "retry-after": "5" }, body, 1_024)).toMatchObject({
      outcome: "rejected",
      errorCode: `status_${statusCode}`,
      statusCode,
      retryAfter: "5",
      responseHeaders: { "retry-after": "5" },
    });
  });

  it.each([
    [410, "1", true],
    [410, "1 ", true],
    [410, ["1", "1"], true],
    [410, "1, 1", true],
    [410, "0", false],
    [410, undefined, false],
    [404, "1", false],
  ])("is a refusal or not with status %i and webhook-refuse: %j", (statusCode, value, is) => {
    const headers = { "webhook-refuse": value };
    expect(endWithAnswer(statusCode, headers, body, 1_024).isRefusal).toBe(is);
  });

  it.each([0, 100, 199, 1_000])("is nothing that anybody knows with status %i", (statusCode) => {
    expect(() => endWithAnswer(statusCode, {}, body, 1_024)).toThrow(RangeError);
  });

  it("is told by the error where there was no answer", () => {
    for (const errorCode of ATTEMPT_ERROR_CODES) {
      expect(endWithError(errorCode)).toEqual({
        outcome: outcomeOfErrorCode(errorCode),
        errorCode,
        statusCode: null,
        retryAfter: null,
        isRefusal: false,
        responseHeaders: null,
        responseExcerpt: null,
      });
    }
    expect(() => endWithError("no_target")).toThrow("no_target is no error of an attempt.");
  });
});

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

  it.prop([fc.string({ unit: fc.nat(0xffff).map((code) => String.fromCharCode(code)) })])(
    "is always well formed and free of NUL",
    (text) => {
      const kept = recordableText(text);
      expect(kept.isWellFormed()).toBe(true);
      expect(kept.includes("\u0000")).toBe(false);
      expect(recordableText(kept)).toBe(kept);
    },
  );
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

  it("keeps what the receiver itself could not spell, but for what was cut in half", () => {
    const text = "a\ufffdb\ufffdc";
    expect(excerpt(text)).toBe(text);
    expect(excerpt(text, { isCut: true })).toBe(`${text}… [cut off]`);
    for (const half of [[0xc3], [0xe2, 0x82], [0xf0, 0x9f, 0x98]])
      expect(excerpt(Buffer.from([...Buffer.from(text), ...half]), { isCut: true })).toBe(
        `${text}… [cut off]`,
      );
    expect(excerpt(Buffer.alloc(1_024, 0xff)), "three bytes for each of one").toBe(
      `${"\ufffd".repeat(340)}…`,
    );
  });

  it("does not show compressed bytes", () => {
    expect(excerpt("\u001f\u008bzzzz", { headers: { "content-encoding": "gzip" } })).toBe(
      "[compressed: gzip]",
    );
    for (const encoding of ["identity", "Identity"])
      expect(excerpt("plain", { headers: { "content-encoding": encoding } })).toBe("plain");
    expect(excerpt("", { headers: { "content-encoding": "gzip" } })).toBeNull();
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

  it("are those, too, that only somebody in front of an application sends", () => {
    const headers = {
      "cf-mitigated": "challenge",
      "ngrok-error-code": "ERR_NGROK_3200",
      "x-vercel-error": "X",
    };
    expect(recordedHeaders({ ...headers, "x-iinfo": "10-1-0" })).toEqual(headers);
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
