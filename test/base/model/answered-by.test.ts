import { readFileSync } from "node:fs";
import { fc, test as fuzz } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import { ANSWER_RULES, type AnswerRule } from "../../../src/base/model/answer-rules.ts";
import {
  ANSWERER_KINDS,
  type AnswererKind,
  answeredBy,
  explainAnswer,
  findRule,
} from "../../../src/base/model/answered-by.ts";
import { explainErrorCode } from "../../../src/base/model/error-codes.ts";
import { excerptOf, recordedHeaders } from "../../../src/egress/post/result.ts";

/**
 * An answer to a webhook, as it was recorded, or as its words are documented, at `source`; names, addresses and numbers
 * in it are made up, and long pages are cut.
 */
type Recorded = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly source: string;
};
type FromOthers = Recorded & { readonly kind: AnswererKind; readonly name: string };
type FromApplication = Recorded & { readonly from: string };

function read<Row>(file: string): readonly Row[] {
  return JSON.parse(readFileSync(new URL(`../../fixtures/${file}`, import.meta.url), "utf8"));
}

const others = read<FromOthers>("answers-of-others.json");
const applications = read<FromApplication>("answers-of-applications.json");

const EXCERPT_BYTES_MAX = 1_024;

/** What the log has of it. */
function logged({ status, headers, body }: Recorded) {
  const bytes = Buffer.from(body);
  const read = { chunks: [bytes], bytesCount: bytes.length, isCut: false };
  return {
    statusCode: status,
    headers: recordedHeaders(headers),
    excerpt: excerptOf(read, headers, EXCERPT_BYTES_MAX),
  };
}

const told = others.map((one) => ({ one, found: findRule(logged(one)) }));
const isRight = ({ one, found }: (typeof told)[number]) =>
  found !== null && found.kind === one.kind && found.rule.name === one.name;
const rightCount = told.filter(isRight).length;
const mistaken = applications.filter((one) => answeredBy(logged(one)) !== null);
const precision = rightCount / (told.filter(({ found }) => found !== null).length + mistaken.length);
const recall = rightCount / others.length;
const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

describe("who answered", () => {
  const figures = `a precision of ${percent(precision)} and a recall of ${percent(recall)}`;
  test(`has ${figures} on ${others.length} answers`, () => {
    expect(others.length).toBeGreaterThanOrEqual(150);
    expect(told.filter((each) => each.found !== null && !isRight(each))).toEqual([]);
    expect(precision).toBeGreaterThanOrEqual(0.98);
    expect(recall).toBeGreaterThanOrEqual(0.9);
  });

  test(`takes none of ${applications.length} ordinary applications for something else`, () => {
    expect(applications.length).toBeGreaterThanOrEqual(100);
    expect(mistaken).toEqual([]);
  });

  test("is recorded of all kinds, each answer once and with its source", () => {
    expect(new Set(others.map(({ kind }) => kind))).toEqual(new Set(ANSWERER_KINDS));
    const all = [...others, ...applications];
    expect(new Set(all.map(({ source: _, ...one }) => JSON.stringify(one))).size).toBe(all.length);
    expect(all.filter(({ source }) => !/^https:\/\/\S+$/.test(source))).toEqual([]);
  });

  test("is nobody's where there was no answer", () => {
    expect(answeredBy({ statusCode: null, headers: null, excerpt: null })).toBeNull();
    expect(answeredBy({ statusCode: 404, headers: null, excerpt: null })).toBeNull();
  });
});

const BY_KIND: Readonly<Record<AnswererKind, readonly AnswerRule[]>> = ANSWER_RULES;
const RULES = ANSWERER_KINDS.flatMap((kind) =>
  BY_KIND[kind].map((rule) => ({ kind, name: rule.name, rule })),
);

describe("a rule", () => {
  test.each(RULES)("of $kind tells $name: $rule", ({ kind, rule }) => {
    const decided = told.filter(({ found }) => found?.rule === rule);
    expect(decided).not.toEqual([]);
    for (const { one } of decided) expect([one.kind, one.name]).toEqual([kind, rule.name]);
  });

  test.each(RULES)("of $kind for $name is written as answers are compared: $rule", ({ rule }) => {
    const { header = [], host = [], path = [], begins = [], page = [] } = rule;
    const texts = [...header, ...host, ...path, ...begins, ...page];
    expect(texts.map((text) => text.toLowerCase().replace(/\s+/g, " "))).toEqual(texts);
  });

  test("needs all of its signs", () => {
    const alb = { headers: { server: "awselb/2.0" }, excerpt: "<center><h1>403 Forbidden</h1></center>" };
    expect(answeredBy({ statusCode: 403, ...alb })?.kind).toBe("waf");
    expect(answeredBy({ statusCode: 502, ...alb })?.kind).toBe("proxy");
    expect(answeredBy({ statusCode: 403, ...alb, headers: {} })).toBeNull();
    expect(answeredBy({ statusCode: 403, ...alb, excerpt: '{"error":"no"}' })).toBeNull();
  });

  test.each([
    ["error code: 1020", "waf"],
    ["error code: 10201", null],
    ["error code: 1021", null],
    ["my error code: 1020", null],
  ])("for Cloudflare's error numbers takes %j for %s", (excerpt, kind) => {
    const headers = { server: "cloudflare" };
    expect(answeredBy({ statusCode: 403, headers, excerpt })?.kind ?? null).toBe(kind);
    expect(answeredBy({ statusCode: 403, headers: { server: "nginx" }, excerpt })).toBeNull();
  });

  test.each([
    ["https://okta.com/", "Okta"],
    ["https://a.b.okta.com", "Okta"],
    ["https://ACME.OKTA.COM/x", "Okta"],
    ["//acme.okta.com/x", "Okta"],
    ["/acme.okta.com/x", null],
    ["https://notokta.com/", null],
    ["https://okta.com.example.com/", null],
    ["https://example.com/?to=https://acme.okta.com/", null],
    ["https://[", null],
  ])("for hosts takes a redirect to %s for %s", (location, name) => {
    expect(answeredBy({ statusCode: 302, headers: { location }, excerpt: null })?.name ?? null).toBe(name);
  });
});

describe("the evidence", () => {
  test.each([
    [
      404,
      { "ngrok-error-code": "ERR_NGROK_3200" },
      "",
      "Shown by the header ngrok-error-code: err_ngrok_3200.",
    ],
    [405, { "x-amzn-waf-action": "captcha" }, "", "Shown by the header x-amzn-waf-action."],
    [302, { location: "https://a.oktapreview.com/?t=1" }, "", "Shown by a redirect to oktapreview.com."],
    [302, { location: "/oauth2/start?rd=/" }, "", "Shown by “/oauth2/” in the Location header."],
    [511, {}, "", "Shown by the status 511."],
    [530, { server: "cloudflare" }, "error code: 1033", "Shown by Cloudflare's error 1033."],
    [503, {}, "No healthy  upstream", "Shown by “no healthy upstream” in the body."],
    [
      404,
      { server: "Netlify" },
      "Not Found - Request ID: 1",
      "Shown by the header server: netlify and “not found - request id:” in the body.",
    ],
  ])("of a %i with %j is a sentence", (statusCode, headers, excerpt, evidence) => {
    expect(answeredBy({ statusCode, headers: { ...headers }, excerpt })?.evidence).toBe(evidence);
  });

  test("has nothing that is not of the rule", () => {
    for (const one of others) {
      const { statusCode, headers, excerpt } = logged(one);
      const marked = Object.entries(headers ?? {}).map(([name, value]) => [
        name,
        name === "location" ? `${value}${value.includes("?") ? "&" : "?"}code=planted` : `${value}; planted`,
      ]);
      const answer = {
        statusCode,
        headers: Object.fromEntries(marked),
        excerpt: `${excerpt ?? ""} planted`,
      };
      expect(answeredBy(answer)?.evidence ?? "").not.toContain("planted");
    }
  });

  fuzz.prop([fc.integer({ min: 300, max: 599 }), fc.json(), fc.string()])(
    "is never found in what applications answer of their own",
    (statusCode, json, text) => {
      for (const excerpt of [json, text, `<p>${text}`]) {
        const headers = { server: "cloudflare", via: "1.1 google", location: text };
        expect(
          answeredBy({ statusCode: statusCode === 511 ? 500 : statusCode, headers, excerpt }),
        ).toBeNull();
      }
    },
  );
});

describe("an explanation", () => {
  const explained = (statusCode: number, headers: Record<string, string>, excerpt: string | null = null) =>
    explainAnswer({ statusCode, headers, excerpt }, explainErrorCode(`status_${statusCode}`));
  const NGINX = "<center><h1>x</h1></center><hr><center>nginx</center>";

  test("says what to do about who answered", () => {
    expect(explained(404, { "ngrok-error-code": "ERR_NGROK_3200" })).toEqual({
      message: "ngrok answered: the tunnel is not running (status 404).",
      remedy: expect.stringMatching(/^Start the tunnel /),
      concernsUrl: true,
    });
    expect(explained(502, { "ngrok-error-code": "ERR_NGROK_8012" }).message).toBe(
      "ngrok answered: the tunnel runs, but nothing answers behind it (status 502).",
    );
    expect(explained(401, { "www-authenticate": "Cloudflare-Access" })).toEqual({
      message: "Cloudflare Access answered: it wants somebody to sign in (status 401).",
      remedy: "Exempt the webhook's path from the login; verify the signature instead.",
    });
  });

  test("keeps what a status says where a proxy sent it", () => {
    const ofStatus = explainErrorCode("status_502");
    expect(explained(502, {}, NGINX)).toEqual({
      ...ofStatus,
      message: `${ofStatus.message} nginx answered: this is its own page, not the application's.`,
    });
    expect(explained(404, {}, NGINX).concernsUrl).toBe(true);
  });

  test("says nothing of signatures where the application did not see one", () => {
    const { message, remedy, concernsSecret } = explained(401, {}, NGINX);
    expect(message).toBe("nginx answered: this is its own page, not the application's (status 401).");
    expect(`${remedy}${concernsSecret}`).not.toMatch(/secret|true/);
  });

  test("is the status's where the application answered", () => {
    expect(explained(404, { server: "cloudflare" }, '{"error":"no"}')).toEqual(
      explainErrorCode("status_404"),
    );
  });
});
