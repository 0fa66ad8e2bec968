import { describe, expect, test } from "vitest";
import { NAMED_ERROR_CODES, outcomeOfErrorCode } from "../../src/base/model/error-codes.ts";
import { DELIVERY_STATUSES, END_REASONS } from "../../src/base/model/statuses.ts";
import {
  type Explainable,
  type ExplanationContext,
  explainAttempt,
  explainDelivery,
} from "../../src/log/explanation.ts";

const WEEK_MS = 7 * 86_400_000;
const DUE = Date.UTC(2026, 2, 1, 12, 0, 5, 678);
const DUE_TEXT = new Date(DUE).toISOString();

const fresh: Explainable = {
  created_at: "2026-03-01T12:00:00.000Z",
  status: "pending",
  reason: null,
  run: 1,
  attempts_count: 0,
  is_example: false,
  next_attempt_at: DUE_TEXT,
  in_flight: false,
  held: false,
  waits_for_earlier_run: false,
  waits_for_proof: false,
  target_source: "request",
  last_error_code: null,
  last_status_code: null,
};
const explain = (some: Partial<Explainable>) => explainDelivery({ ...fresh, ...some }, WEEK_MS);
const failed = { status: "failed", attempts_count: 1, last_error_code: "dns_not_found" } as const;

describe("a delivery in plain words", () => {
  test.each<[string, Partial<Explainable>, RegExp]>([
    [
      "nothing has happened yet",
      {},
      /^The event has not been delivered yet\. The attempt is due at 2026-03-01 12:00:05 UTC\.$/,
    ],
    [
      "the first attempt is under way",
      { in_flight: true, next_attempt_at: null },
      /^The event has not been delivered yet\. The attempt is in progress\.$/,
    ],
    [
      "it is a test event",
      { is_example: true },
      /^This is a test event; its analysis is an example\. The event has not been delivered yet\. /,
    ],
    [
      "a replay waits for its turn",
      { run: 2, last_error_code: "status_503", attempts_count: 8 },
      /^A replay was requested\. The attempt is due at .* UTC\. Before that: The receiver returned 503.*\.$/,
    ],
    [
      "a replay waits for the end of the attempt before it",
      { run: 2, in_flight: true, waits_for_earlier_run: true, next_attempt_at: null },
      /^A replay was requested\. It starts when the attempt in progress has ended, and is dropped if .*\.$/,
    ],
    [
      "the last attempt failed",
      failed,
      /^The host name .*\. The next attempt is due at 2026-03-01 12:00:05 UTC\. .*\. To retry at once, replay it\.$/,
    ],
    [
      "the next attempt is under way",
      { ...failed, in_flight: true, next_attempt_at: null },
      /The next attempt is in progress\.(?!.*replay)/,
    ],
    ["the time of the next attempt is not known", { ...failed, next_attempt_at: null }, /is due shortly\./],
    [
      "its receiver has proven nothing yet",
      { waits_for_proof: true },
      /^The event has not been delivered yet\. The attempt waits\. The receiver has returned no 2xx .* no time\.$/,
    ],
    [
      "it has arrived",
      { status: "succeeded", last_status_code: 204, next_attempt_at: null },
      /^The receiver accepted the event with status 204\. No action is needed\.$/,
    ],
    [
      "all attempts are used up",
      { status: "abandoned", reason: "attempts_exhausted", last_error_code: "status_401", attempts_count: 8 },
      /^All attempts failed, .* no more\. The receiver returned 401.*signature.*until 2026-03-08 12:00:00 UTC/,
    ],
    [
      "the time was over before anything could be sent",
      { status: "abandoned", reason: "window_ended" },
      /^The delivery ran out of time.*not the receiver's fault: replay the delivery\. It can be replayed, .* until/,
    ],
    [
      "there was nowhere to go",
      { status: "abandoned", reason: "no_target" },
      /^There was no webhook URL.*Configure an endpoint.*until 2026-03-08 12:00:00 UTC/,
    ],
    [
      "the endpoint was removed between two attempts",
      { status: "abandoned", reason: "no_target", attempts_count: 3, last_error_code: "status_503" },
      /^The account's endpoint was removed.*Before that: The receiver returned 503.*Configure an endpoint/,
    ],
    [
      "the URL breaks a rule",
      { status: "abandoned", reason: "target_refused", last_error_code: "url_not_https" },
      /^The webhook URL does not start with https/,
    ],
    ["the URL breaks some rule", { status: "abandoned", reason: "target_refused" }, /public HTTPS address/],
    [
      "it is too late",
      { status: "abandoned", reason: "analysis_expired" },
      /no longer kept.*Run the analysis again/,
    ],
  ])("%s", (_, some, expected) => {
    expect(explain(some)).toMatch(expected);
  });

  describe("of a URL that is at fault", () => {
    const own = { target_source: "request" } as const;
    const endpoint = { target_source: "endpoint" } as const;
    const gone = { status: "abandoned", reason: "attempts_exhausted", attempts_count: 8 } as const;

    test.each(["status_410", "status_301", "status_404", "dns_not_found", "tls_wrong_name"])(
      "%s: one that came with the request cannot be changed, an endpoint can",
      (last_error_code) => {
        const stays =
          /The URL came with the request and cannot be changed: .* publish the result under a new analysis id\./;
        expect(explain({ ...gone, ...own, last_error_code })).toMatch(stays);
        expect(explain({ ...failed, ...own, last_error_code })).toMatch(stays);
        expect(explain({ ...gone, ...endpoint, last_error_code })).not.toMatch(stays);
        expect(explain({ ...gone, ...own, last_error_code })).toMatch(
          /It can be replayed, and its analysis read, until/,
        );
      },
    );

    test.each(["status_503", "connect_timeout", "response_timeout"])(
      "%s is not the URL's fault",
      (last_error_code) => {
        expect(explain({ ...gone, ...own, last_error_code })).not.toMatch(/came with the request/);
      },
    );

    test("a replay that can only be refused again is not offered", () => {
      const refused = {
        status: "abandoned",
        reason: "target_refused",
        last_error_code: "url_not_https",
      } as const;
      expect(explain({ ...refused, ...own })).toMatch(
        /^The webhook URL does not start with https.* new analysis id\. The analysis can be read until 2026-03-08/,
      );
      expect(explain({ ...refused, ...own })).not.toMatch(/[Rr]eplay/);
      expect(explain({ ...refused, ...endpoint })).toMatch(
        /It can be replayed, and its analysis read, until/,
      );
    });
  });

  test("of one that can be replayed no longer says nothing of replays", () => {
    expect(explain({ status: "abandoned", reason: "analysis_expired" })).not.toMatch(/[Rr]eplay/);
  });

  const every = DELIVERY_STATUSES.flatMap((status) =>
    (status === "abandoned" ? END_REASONS : [null]).flatMap((reason) =>
      [null, "dns_not_found", "status_599", "from_the_future"].flatMap((last_error_code) =>
        [true, false].map((in_flight) => ({ status, reason, last_error_code, in_flight, run: 2 })),
      ),
    ),
  );
  test.each(every)("is whole sentences: %j", (some) => {
    expect(explain(some)).toMatch(/^[A-Z][^\n]*[.!]$/);
    expect(explain(some)).not.toMatch(/undefined|null|NaN|\s{2}|\.\./);
  });
});

describe("what is known besides", () => {
  const explainKnown = (some: Partial<Explainable>, known: ExplanationContext) =>
    explainDelivery({ ...fresh, ...some }, WEEK_MS, known);

  test.each([
    ["status_400", null, /signing secret.* The secret has never been rotated\./],
    ["status_401", DUE, /signing secret.* The secret was last rotated at 2026-03-01 12:00:05 UTC\./],
    ["status_503", DUE, /^(?!.*rotated)/],
  ])("%s and the secret's rotation", (last_error_code, secretRotatedAtMs, said) => {
    const known = { secretRotatedAtMs };
    expect(explainKnown({ ...failed, last_error_code }, known)).toMatch(said);
    const ended = { status: "abandoned", reason: "attempts_exhausted", next_attempt_at: null } as const;
    expect(explainKnown({ ...failed, ...ended, last_error_code }, known)).toMatch(said);
    expect(explainKnown({ ...failed, last_error_code }, {})).not.toMatch(/rotated/);
  });

  const refusedBy = (error_code: string, response_headers: Record<string, string>) => ({
    ended_at: DUE_TEXT,
    error_code,
    status_code: Number(error_code.slice(-3)),
    response_headers,
    response_excerpt: null,
  });

  test.each<[string, Record<string, string>, RegExp]>([
    [
      "status_404",
      { "ngrok-error-code": "ERR_NGROK_3200" },
      /^ngrok answered: the tunnel is not running \(status 404\)\. .*Start the tunnel .* webhook URL\. The URL came/,
    ],
    [
      "status_401",
      { "www-authenticate": "Cloudflare-Access" },
      /^(?!.*secret)(?!.*rotated).*Exempt .* login;/,
    ],
    ["status_401", {}, /signing secret.*never been rotated/],
  ])("%s of who answers with %j", (last_error_code, headers, said) => {
    const known = { secretRotatedAtMs: null, lastAttempt: refusedBy(last_error_code, headers) };
    const ended = { status: "abandoned", reason: "attempts_exhausted", next_attempt_at: null } as const;
    expect(explainKnown({ ...failed, last_error_code }, known)).toMatch(said);
    expect(explainKnown({ ...failed, ...ended, last_error_code }, known)).toMatch(
      new RegExp(said.source.replace("^ngrok", "ngrok")),
    );
    // Where that is not what ended it.
    const other = { ...failed, last_error_code: "dns_not_found" };
    expect(explainKnown(other, known)).toBe(explainKnown(other, {}));
  });

  test.each([
    ["30", 30_000, /The receiver asked for that time with "Retry-After: 30"\./],
    ["1", 30_000, /receiver's "Retry-After: 1" asks for no longer wait than that\./],
    [
      "86400",
      30_000,
      /"Retry-After: 86400" asks for a longer wait than the retry schedule allows; this is the longest\./,
    ],
    ["soon", 30_000, /"Retry-After: soon" names no future time, and changed nothing\./],
    [undefined, 30_000, /^(?!.*Retry-After)/],
  ])("the effect of Retry-After: %s", (header, waitMs, said) => {
    const headers: Record<string, string> = header === undefined ? {} : { "retry-after": header };
    const lastAttempt = { ended_at: new Date(DUE - waitMs).toISOString(), response_headers: headers };
    const code = "status_503";
    expect(explainKnown({ ...failed, last_error_code: code }, { lastAttempt })).toMatch(said);
    // There is none to come.
    const inFlight = { in_flight: true, next_attempt_at: null };
    expect(explainKnown({ ...failed, ...inFlight, last_error_code: code }, { lastAttempt })).not.toMatch(
      /Retry-After/,
    );
  });
});

test.each([
  ["pending", {}],
  ["failed", failed],
] as const)("a held one that is %s says that it is held, not when it is due", (status, more) => {
  const said = explain({ ...more, status, held: true, next_attempt_at: null });
  expect(said).toMatch(/ It is held because the endpoint is paused, or has only just been resumed\. /);
  expect(said).not.toMatch(/due|To retry at once/);
});

test("a failed one that waits for its receiver's first 2xx is not sped up by a replay", () => {
  const said = explain({ ...failed, waits_for_proof: true });
  expect(said).toContain(" The next attempt waits. ");
  expect(said).not.toContain("To retry at once");
});

describe("an attempt in plain words", () => {
  const codes = NAMED_ERROR_CODES.filter((code) => outcomeOfErrorCode(code) !== null);
  test.each([...codes, "status_302", "status_418", "status_503", "from_the_future"])(
    "%s: what happened, and what can be done",
    (error_code) => {
      expect(explainAttempt({ error_code, started_at: DUE_TEXT })).toMatch(/^[A-Z].*\. [A-Z].*\.$/);
    },
  );

  test.each(["status_400", "status_401"])("%s: the secret first, and when it was rotated", (error_code) => {
    const said = (secretRotatedAtMs: number | null) =>
      explainAttempt({ error_code, started_at: DUE_TEXT }, { secretRotatedAtMs });
    expect(said(null)).toMatch(
      /^[^.]*\. Check first [^.]*signing secret.*The secret has never been rotated\.$/,
    );
    expect(said(DUE - 1_000)).toMatch(/last rotated at 2026-03-01 12:00:04 UTC, before this attempt\.$/);
    expect(said(DUE + 1_000)).toMatch(/last rotated at 2026-03-01 12:00:06 UTC, after this attempt\.$/);
  });

  test("is about who answered, where that was somebody else", () => {
    const attempt = { error_code: "status_503", started_at: DUE_TEXT, status_code: 503 };
    const [response_headers, response_excerpt] = [{ "content-type": "text/plain" }, "no available server\n"];
    expect(explainAttempt({ ...attempt, response_headers, response_excerpt })).toMatch(
      /^The receiver returned 503: .* Traefik answered: this is its own page, not the application's\. Check /,
    );
  });

  test("needs none when it succeeded", () => {
    expect(explainAttempt({ error_code: null, started_at: DUE_TEXT })).toBeNull();
  });
});
