import { describe, expect, test } from "vitest";
import { type EndpointHealth, judgeEndpoint } from "../../src/notices/news.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NOW = Date.UTC(2026, 10, 22, 12);
const URL = "https://hooks.example.com/in";

const failing: EndpointHealth = {
  url: URL,
  endpointUrl: URL,
  failingSinceMs: NOW - HOUR,
  failedAttempts: 10,
  abandoned: 0,
  succeededAtMs: null,
  isFailing: false,
  toldAtMs: null,
};
const judge = (changes: Partial<EndpointHealth>) => judgeEndpoint({ ...failing, ...changes }, NOW);

describe("an endpoint is failing", () => {
  const noSuccess = { kind: "tell_failing", reason: "no_success" };
  const abandoned = { kind: "tell_failing", reason: "abandoned" };

  test.each([
    ["after an hour without a success and 10 failed attempts", {}, noSuccess],
    ["not a millisecond sooner", { failingSinceMs: NOW - HOUR + 1 }, { kind: "wait" }],
    ["not with 9", { failedAttempts: 9 }, { kind: "wait" }],
    ["not with 9 in a week", { failedAttempts: 9, failingSinceMs: NOW - 7 * DAY }, { kind: "wait" }],
    ["with 9 and one abandoned", { failedAttempts: 9, abandoned: 1 }, abandoned],
    ["at once when one is abandoned", { failingSinceMs: NOW, failedAttempts: 1, abandoned: 1 }, abandoned],
    ["also when others arrive", { failingSinceMs: null, failedAttempts: 0, abandoned: 1 }, abandoned],
    [
      "also without any attempt",
      { url: null, failingSinceMs: null, failedAttempts: 0, abandoned: 1 },
      abandoned,
    ],
    ["for both reasons: for the one that says more", { abandoned: 3 }, noSuccess],
  ] as const)("%s", (_, changes, verdict) => {
    expect(judge(changes)).toEqual(verdict);
  });

  test.each([
    ["not again within the hour", { toldAtMs: NOW - HOUR + 1 }, "wait"],
    ["nor for another abandoned one", { toldAtMs: NOW - HOUR + 1, abandoned: 1 }, "wait"],
    ["but after it", { toldAtMs: NOW - HOUR }, "tell_failing"],
    ["not while it is known", { isFailing: true, toldAtMs: NOW - DAY }, "wait"],
  ] as const)("%s", (_, changes, kind) => {
    expect(judge(changes).kind).toBe(kind);
  });

  test.each([
    ["another URL is the endpoint now", { endpointUrl: "https://hooks.example.com/other" }],
    ["there is none now", { endpointUrl: null }],
    ["there is none now, and it was known", { endpointUrl: null, isFailing: true, toldAtMs: NOW - DAY }],
    ["the last attempt succeeded", { failingSinceMs: null, failedAttempts: 0 }],
  ] as const)("no more when %s", (_, changes) => {
    expect(judge(changes)).toEqual({ kind: "forget" });
  });

  test("stays noted for the hour after it was told, although all is well", () => {
    expect(judge({ failingSinceMs: null, failedAttempts: 0, toldAtMs: NOW - HOUR + 1 }).kind).toBe("wait");
    expect(judge({ failingSinceMs: null, failedAttempts: 0, toldAtMs: NOW - HOUR }).kind).toBe("forget");
  });
});

describe("an endpoint that was failing has recovered", () => {
  const known = { isFailing: true, toldAtMs: NOW - MINUTE, failingSinceMs: null, failedAttempts: 0 };
  test.each([
    ["after a success since it was told", { succeededAtMs: NOW - MINUTE + 1 }, "tell_recovered"],
    ["even if others fail beside it", { succeededAtMs: NOW, failingSinceMs: NOW }, "tell_recovered"],
    [
      "even at another URL",
      { succeededAtMs: NOW, endpointUrl: "https://new.example.com/" },
      "tell_recovered",
    ],
    ["not by a success of the same moment", { succeededAtMs: NOW - MINUTE }, "wait"],
    ["not without one", { succeededAtMs: null }, "wait"],
    [
      "and was not failing: nothing to tell",
      { succeededAtMs: NOW, isFailing: false, toldAtMs: null },
      "forget",
    ],
  ] as const)("%s", (_, changes, kind) => {
    expect(judge({ ...known, ...changes }).kind).toBe(kind);
  });
});
