import { describe, expect, it } from "vitest";
import {
  explainEndReason,
  explainErrorCode,
  isErrorCode,
  isOurFailure,
  NAMED_ERROR_CODES,
  outcomeOfErrorCode,
} from "../../../src/base/model/error-codes.ts";
import { statusErrorCode } from "../../../src/base/model/http-status-errors.ts";
import { END_REASONS, OUTCOMES } from "../../../src/base/model/statuses.ts";
import { URL_REFUSALS } from "../../../src/base/model/url-refusals.ts";

const STATUSES = Array.from({ length: 700 }, (_, index) => 300 + index);

describe("the catalogue", () => {
  it.each(NAMED_ERROR_CODES)("explains %s in whole sentences", (code) => {
    const { message, remedy } = explainErrorCode(code);
    for (const text of [message, remedy]) expect(text).toMatch(/^[A-Z].{10,240}\.$/);
    expect(code).toMatch(/^[a-z][a-z0-9_]{2,39}$/);
    expect(isErrorCode(code)).toBe(true);
  });

  it("says nothing twice, so that every sentence fits its code", () => {
    const messages = NAMED_ERROR_CODES.map((code) => explainErrorCode(code).message);
    expect(new Set(messages).size).toBe(messages.length);
  });

  it("knows every reason for which a URL is refused, as a refusal", () => {
    const outcomes = Object.keys(URL_REFUSALS).map((code) => isErrorCode(code) && outcomeOfErrorCode(code));
    expect(new Set(outcomes)).toEqual(new Set(["target_refused"]));
  });

  it("has a code for every outcome but success", () => {
    const outcomes = new Set(NAMED_ERROR_CODES.map(outcomeOfErrorCode));
    for (const outcome of OUTCOMES) {
      expect(outcomes.has(outcome), outcome).toBe(outcome !== "succeeded");
    }
  });

  it("never promises the next attempt, since this one may be the last", () => {
    const texts = NAMED_ERROR_CODES.map((code) => Object.values(explainErrorCode(code)).join(" "));
    expect(texts.filter((text) => /try again|retry/i.test(text))).toEqual([]);
  });

  it.each(END_REASONS)("explains why a delivery ended as %s", (reason) => {
    expect(explainEndReason(reason).message).toMatch(/\.$/);
    expect(isErrorCode(reason)).toBe(true);
  });

  it("tells an interrupted attempt from a delivery given up after interruptions", () => {
    expect(explainErrorCode("interrupted")).not.toEqual(explainEndReason("interrupted"));
  });

  it("charges no failure of ours to the receiver, and none of the receiver's to us", () => {
    expect(NAMED_ERROR_CODES.filter(isOurFailure)).toEqual([
      "interrupted",
      "shut_down",
      "egress_proxy_failed",
      "not_proven",
      "local_resources_exhausted",
    ]);
    expect(isOurFailure("status_500")).toBe(false);
  });
});

describe("the codes of HTTP statuses", () => {
  it("explains every status that is not a success", () => {
    for (const status of STATUSES) {
      const code = statusErrorCode(status);
      expect(isErrorCode(code)).toBe(true);
      expect(outcomeOfErrorCode(code)).toBe("rejected");
      const { message, remedy } = explainErrorCode(code);
      expect(message).toContain(`returned ${status}`);
      expect(remedy).toMatch(/\.$/);
    }
  });

  it.each([301, 302, 303, 307, 308])("says of %i that it is not followed", (status) => {
    const { message, remedy } = explainErrorCode(`status_${status}`);
    expect(message).toContain("not followed");
    expect(remedy).toContain("final URL");
  });

  it.each([200, 204, 299, 0, 100, 1000, 300.5, Number.NaN])("has none for %d", (status) => {
    expect(() => statusErrorCode(status)).toThrow(RangeError);
    expect(isErrorCode(`status_${status}`)).toBe(false);
  });
});

it.each(["", "status_", "status_50", "status_5000", "toString", "__proto__", "STATUS_500"])(
  "does not take %j for a code, and yet has words for it",
  (code) => {
    expect(isErrorCode(code)).toBe(false);
    expect(explainErrorCode(code).message).toContain(code);
  },
);
