import MarkdownIt from "markdown-it";
import { afterEach, describe, expect, test } from "vitest";
import { standardProblems } from "../../src/http/problem-catalogue.ts";
import { explainProblem, TemporarilyUnavailable } from "../../src/http/problems.ts";
import { boxProblems } from "../support/api-boxes.ts";
import { expectProblem } from "../support/api-expect.ts";
import { createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<void> {
  api = await createToyApi(overrides);
  await api.listen();
}

const get = (path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(`http://127.0.0.1:${api.port()}${path}`, init);
/** What people read of a page's main part, or of Markdown. */
const textOf = (markup: string): string =>
  markup
    .replace(/^[\s\S]*<main>|<\/main>[\s\S]*$/g, "")
    .replace(/<[^>]*>/g, " ")
    .replace(/&#(\d+);/g, (_, char) => String.fromCharCode(Number(char)))
    .replace(/&(amp|lt|gt|quot);/g, (_, name: string) => ({ amp: "&", lt: "<", gt: ">" })[name] ?? '"')
    .replace(/\s+/g, " ")
    .trim();
const rendered = (markdown: string): string => textOf(new MarkdownIt({ html: true }).render(markdown));
const html = { headers: { accept: "text/html,application/xhtml+xml,*/*;q=0.8" } };

/** As people read them, some from the code and some with words of their own. */
const TITLES: Readonly<Record<string, string>> = {
  invalid_request: "Invalid request",
  invalid_request_id: "Invalid request id",
  unauthorized: "Unauthorized",
  billing_credits_exhausted: "Billing credits exhausted",
  not_found: "Not found",
  idempotency_in_progress: "Idempotency key in progress",
  payload_too_large: "Payload too large",
  range_not_satisfiable: "Range not satisfiable",
  box_gone: "Box gone",
};

describe("a page about an error", () => {
  test("is where the problem's type points, for every code, as JSON and as HTML", async () => {
    await start();
    for (const [code, kind] of Object.entries({ ...standardProblems, ...boxProblems })) {
      const { status, meaning, remedy } = kind;
      const title = TITLES[code] ?? explainProblem(code, kind).title;
      const json = await get(`/errors/${code}`);
      expect(json.headers.get("content-type")).toBe("application/json");
      expect(await json.json()).toEqual({ code, status, title, meaning, remedy });
      const page = await get(`/errors/${code}`, html);
      expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
      expect(page.headers.get("vary")).toBe("accept");
      const markup = await page.text();
      const text = markup.replace(/&#(\d+);/g, (_, char) => String.fromCharCode(Number(char)));
      const asText = text.replace(/<\/?code>/g, "`");
      expect(text).toContain(`<h1>${title}</h1>`);
      expect(asText).toContain(meaning);
      expect(asText).toContain(remedy);
      const markdown = await get(`/errors/${code}.md`, html);
      expect(markdown.headers.get("content-type")).toBe("text/markdown; charset=utf-8");
      expect(rendered(await markdown.text())).toBe(`${textOf(markup)} All errors`);
      if (Number(page.headers.get("ratelimit")?.match(/r=(\d+)/)?.[1]) < 5) api.counter.reset();
    }
  });

  test("escapes what it shows and lets nothing else in", async () => {
    await start();
    const page = await get("/errors/box_sealed", html);
    const text = await page.text();
    expect(text).toContain("sealed &#38; cannot be &#60;opened&#62;");
    expect(text).not.toContain("<opened>");
    expect(page.headers.get("content-security-policy")).toMatch(/^default-src 'none'; style-src 'sha256-/);
    expect(page.headers.get("x-content-type-options")).toBe("nosniff");
  });

  test("is listed, and none is made up", async () => {
    await start();
    const { items } = (await (await get("/errors")).json()) as { items: { code: string; status: number }[] };
    expect(items).toHaveLength(Object.keys(standardProblems).length + 2);
    expect(items.map(({ status }) => status)).toEqual(items.map(({ status }) => status).sort());
    const index = await (await get("/errors", html)).text();
    expect(index).toContain('href="reference/"');
    for (const { code } of items) expect(index).toContain(`href="errors/${code}"`);
    const markdown = await (await get("/errors.md")).text();
    expect(rendered(markdown)).toBe(textOf(index));
    for (const { code } of items) expect(markdown).toContain(`(errors/${code}.md)`);
    await expectProblem(await get("/errors/no_such_code.md"), 404, "not_found");
    await expectProblem(await get("/errors/no_such_code"), 404, "not_found");
    await expectProblem(await get("/errors/toString"), 404, "not_found");
  });
});

test("/llms.txt says what this is and where to read on", async () => {
  await start();
  const answer = await get("/llms.txt", html);
  expect(answer.headers.get("content-type")).toBe("text/plain; charset=utf-8");
  expect(await answer.text()).toBe(`# Boxes

An API of boxes, for the tests of the kernel.

- [What can go wrong](errors.md)
- [Every operation, as OpenAPI 3.1](v1/openapi.json?errors=raised)
`);
});

describe("the reference", () => {
  test("asks nobody but this server, as its policy says", async () => {
    await start();
    const home = await get("/", { redirect: "manual" });
    expect([home.status, home.headers.get("location")]).toEqual([302, "/reference/"]);
    const page = await get("/reference");
    expect(page.url).toMatch(/\/reference\/$/);
    expect(page.status).toBe(200);
    const text = await page.text();
    expect(text).toContain("/v1/openapi.json?errors=raised");
    const sources = [...text.matchAll(/\b(?:src|href)="([^"]*)"/g)].map(([, source]) => source);
    expect(sources).toEqual(["js/scalar.js"]);
    const policy = page.headers.get("content-security-policy") ?? "";
    expect(policy).toMatch(/^default-src 'none'; script-src 'self'( 'sha256-[^']+')+; /);
    expect(policy).toContain("connect-src 'self'");
    expect(policy).not.toMatch(/https?:|\*|unsafe-eval/);

    const script = await get("/reference/js/scalar.js");
    expect(script.status).toBe(200);
    expect(script.headers.get("content-type")).toContain("javascript");
    expect((await script.text()).length).toBeGreaterThan(1_000_000);
  });

  test("refuses a Host that is none", async () => {
    await start();
    const response = await api.app.inject({ url: "/reference/", headers: { host: "a b" } });
    expect([response.statusCode, response.json().code]).toEqual([400, "invalid_request"]);
    expect(api.faults).toEqual([]);
  });
});

describe("health", () => {
  test("is answered without counting, ready or not", async () => {
    let isReady = false;
    await start({
      checkReady: async () => {
        if (!isReady) throw new TemporarilyUnavailable("no database");
      },
    });
    const healthy = await get("/healthz");
    expect(healthy.headers.get("ratelimit")).toBe('"address";r=60;t=60');
    expect(healthy.headers.get("ratelimit-policy")).toBe('"address";q=60;w=60');
    expect(await healthy.json()).toEqual({ status: "ok" });
    const unready = await get("/readyz");
    expect(unready.headers.get("retry-after")).toBe("5");
    await expectProblem(unready, 503, "temporarily_unavailable");
    isReady = true;
    expect((await get("/readyz")).status).toBe(200);
    expect((await get("/readyz", { method: "HEAD" })).status).toBe(200);
    expect(api.counter.of("address:127.0.0.1")).toBe(0);
  });
});
