import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { Html } from "../../src/console/html.ts";
import { PROBLEM_WORDS, problemPage } from "../../src/console/problem-page.ts";
import { raisedCodes } from "../../src/http/problem-catalogue.ts";
import { explainProblem } from "../../src/http/problems.ts";
import { declaredRegistry } from "../support/sealpost-operations.ts";

const { operations, problems } = declaredRegistry();

/** Names of fields, headers, methods and paths, and what a console's viewer has never seen. */
const API_WORDS = new RegExp(
  [
    "`",
    "/v1",
    "[a-z]+_[a-z_]+",
    "(?:GET|POST|PUT|PATCH|DELETE|API|JSON|HTTP|UTF-8|scopes?|body|headers?|Bearer)",
    "(?:X-[\\w-]+|RateLimit\\w*|Content-\\w+|Retry-After|Idempotency|Authorization)",
  ]
    .map((word) => (/^[`/]/.test(word) ? word : `\\b${word}\\b`))
    .join("|"),
);

const cardOf = (code: string, errors: Parameters<typeof problemPage>[0]["errors"] = []) => {
  const problem = { ...explainProblem(code, problems[code]!), errors, headers: {} };
  const { title, status, main } = problemPage(problem, "request-1", null);
  const text = (main as Html).text.replaceAll(/<[^>]*>/g, " ");
  return { title, status, text };
};

describe("an error's page", () => {
  test.each(Object.keys(problems))("says %s in words for people", (code) => {
    const { title, status, text } = cardOf(code);
    expect(status).toBe(problems[code]!.status);
    expect([title, API_WORDS.exec(`${title} ${text}`)?.[0]]).toEqual([title, undefined]);
    expect(text).toContain("request-1");
    for (const sentence of (PROBLEM_WORDS[code] ?? []).slice(1)) expect(sentence).toMatch(/^[A-Z].*\.$/);
  });

  test("has words of its own for whatever an operation of the console ends with", () => {
    const source = readFileSync(new URL("../../src/console/screen.ts", import.meta.url), "utf8");
    const used = operations.filter(({ key }) => source.includes(`"${key}"`));
    expect(used.length).toBeGreaterThan(20);
    const raised = new Set(used.flatMap((operation) => [...raisedCodes(operation)]));
    expect([...raised].filter((code) => PROBLEM_WORDS[code] === undefined)).toEqual([]);
    const known = Object.keys(PROBLEM_WORDS);
    expect(known.filter((code) => problems[code] === undefined)).toEqual([]);
  });

  test("is compared with the words that people should not meet", () => {
    for (const word of [
      "`errors`",
      "GET /v1/operations",
      "X-Account-Id",
      "Idempotency-Key",
      "expected_matched",
    ])
      expect(word).toMatch(API_WORDS);
  });

  test("names the fields that are wrong as words, and no header", () => {
    const { text } = cardOf("invalid_request", [
      { path: "query.status_code", message: "Must be at least 100." },
      { path: "body.filter.target_host.0", message: "Must be a host." },
      { path: "header.idempotency-key", message: "Must be printable ASCII." },
    ]);
    for (const name of ["status code", "target host"]) expect(text).toContain(name);
    expect(API_WORDS.exec(text)?.[0]).toBeUndefined();
  });
});
