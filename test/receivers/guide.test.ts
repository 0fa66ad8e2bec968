import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ATTEMPT_ERROR_CODES } from "../../src/base/model/error-codes.ts";
import { createMemoryInbox, type WebhookEvent } from "../../src/signing/index.ts";
import { createReceiver } from "../signing/examples/node-http.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));

let database: TestDatabase;
let api: TestApi;
let page: Response;
let html: string;
let markdown: string;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  page = await fetch(`${api.url}/guide`, { headers: { accept: "text/html" } });
  html = await page.text();
  markdown = await (await fetch(`${api.url}/guide`)).text();
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const unescaped = (text: string) =>
  text.replace(/&#(\d+);/g, (_, char) => String.fromCharCode(Number(char))).replaceAll("&amp;", "&");

/** As a receiver writes it, who has the package and not this repository. */
const asInAProject = (source: string) =>
  source
    .replaceAll('"../../../src/signing/index.ts"', '"sealpost-receiver"')
    .replaceAll('"../../../src/signing/web.ts"', '"sealpost-receiver/web"')
    .trimEnd();

test.each(
  globSync(["test/recipes/*/recipe.*", "test/recipes/*/{pull,receiver}.*", "test/signing/examples/*.ts"], {
    cwd: REPOSITORY,
  }),
)("the guide has %s as it is tested", (path) => {
  const source = asInAProject(readFileSync(`${REPOSITORY}${path}`, "utf8"));
  const blocks = [...html.matchAll(/<pre tabindex="0"><code>([\s\S]*?)<\/code><\/pre>/g)];
  expect(blocks.map(([, code = ""]) => unescaped(code))).toContain(source);
  expect(markdown).toContain(source);
});

test("the guide asks nobody for anything, and its policy allows its one style", () => {
  expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
  const [, style = ""] = /<style>([\s\S]*?)<\/style>/.exec(html) ?? [];
  const digest = createHash("sha256").update(style).digest("base64");
  expect(page.headers.get("content-security-policy")).toBe(
    `default-src 'none'; style-src 'sha256-${digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  );
  expect(html).not.toMatch(/<script|<img|<link|\ssrc=|\sstyle=|\son\w+=/i);
  const links = [...html.matchAll(/\shref="([^"]*)"/g)].map(([, href = ""]) => href);
  const anchors = new Set([...html.matchAll(/\sid="([^"]*)"/g)].map(([, id]) => `#${id}`));
  expect(links.filter((href) => !anchors.has(href))).toEqual(["reference/", "errors"]);
  expect(links.length).toBeGreaterThan(20);
});

test("the guide is a whole page, with the headings of its source", () => {
  for (const heading of [
    "Answer first, then work",
    "In any order",
    "Common mistakes",
    "Python",
    "Go",
    "PHP",
  ]) {
    expect(html).toContain(`>${heading}</h`);
  }
  expect(html.match(/<h1/g)).toHaveLength(1);
  expect(html, "comments name files of the repository").not.toContain("test/recipes");
  expect(markdown).toMatch(/^# Receiving Sealpost's webhooks\n/);
  expect(markdown).not.toContain("<!--");
});

test.each([
  ["/guide.md", "/guide"],
  ["/about-webhooks.md", "/about-webhooks"],
])("%s is the source of %s, for browsers, too", async (path, of) => {
  const asked = await fetch(`${api.url}${path}`, { headers: { accept: "text/html" } });
  expect(asked.headers.get("content-type")).toBe("text/markdown; charset=utf-8");
  expect(await asked.text()).toBe(await (await fetch(`${api.url}${of}`)).text());
});

test("/llms.txt is short, and leads to what it names", async () => {
  const text = await (await fetch(`${api.url}/llms.txt`)).text();
  expect(text).toMatch(/^# Sealpost\n\nNotifies /);
  expect(text.length).toBeLessThan(2_000);
  const links = [...text.matchAll(/\]\(([^)]*)\)/g)].map(([, path = ""]) => path);
  expect(links).toEqual(["guide.md", "errors.md", "v1/openapi.json?errors=raised"]);
  for (const path of links) expect((await fetch(`${api.url}/${path}`)).status, path).toBe(200);
});

test("a webhook signed by hand as the guide shows it is accepted, once, and refused when it is changed", {
  tags: ["slow"],
}, async () => {
  const [, commands = ""] = /```sh\n(BODY=[\s\S]*?)\n```/.exec(markdown) ?? [];
  const stored: WebhookEvent[] = [];
  const secret = "whsec_bm90LWEtcmVhbC1zZWNyZXQ";
  const receiver = createReceiver({
    secret,
    inbox: createMemoryInbox(),
    store: async (event) => void stored.push(event),
  });
  await new Promise<void>((done) => receiver.listen(0, "127.0.0.1", done));
  const { port } = receiver.address() as AddressInfo;
  const post = async (script: string): Promise<string> => {
    const env = { ...process.env, SIGNING_SECRET: secret, RECEIVER: `http://127.0.0.1:${port}/webhooks` };
    const { stdout } = await promisify(execFile)("bash", ["-euc", script], { env });
    return stdout.split("\r\n")[0] ?? "";
  };
  expect(await post(commands)).toBe("HTTP/1.1 204 No Content");
  expect(await post(commands)).toBe("HTTP/1.1 204 No Content");
  expect(await post(commands.replace('--data-binary "$BODY"', '--data-binary "$BODY "'))).toMatch(/ 400 /);
  receiver.close();
  expect(stored).toMatchObject([{ event: "analysis.succeeded", data: { id: "an_1", status: "succeeded" } }]);
});

test.each([...ATTEMPT_ERROR_CODES, "status_503", "status_418"])(
  "/errors/%s explains the attempt's code",
  async (code) => {
    const { body } = await api.ask("GET", `/errors/${code}`, { key: null });
    const senses = [body, ...((body.also ?? []) as (typeof body)[])];
    expect(senses).toContainEqual(
      expect.objectContaining({
        code,
        kind: "attempt",
        outcome: expect.any(String),
        meaning: expect.stringMatching(/\.$/),
        remedy: expect.stringMatching(/\.$/),
      }),
    );
    const page = await fetch(`${api.url}/errors/${code}`, { headers: { accept: "text/html" } });
    const { remedy } = senses.find(({ kind }) => kind === "attempt")!;
    expect(unescaped(await page.text())).toContain(remedy);
    const source = await (await fetch(`${api.url}/errors/${code}.md`)).text();
    expect(source.replaceAll(/\\(?=\W|_)/g, "")).toContain(remedy);
  },
);

test("/errors lists the API's errors, the codes of attempts and the reasons, each with a page", async () => {
  const { body } = await api.ask("GET", "/errors", { key: null });
  const lists = body as unknown as Record<string, readonly { readonly code: string }[]>;
  expect(Object.keys(lists)).toEqual(["items", "attempts", "reasons"]);
  expect(lists.attempts!.map(({ code }) => code)).toEqual(expect.arrayContaining([...ATTEMPT_ERROR_CODES]));
  const index = await (await fetch(`${api.url}/errors`, { headers: { accept: "text/html" } })).text();
  for (const { code } of Object.values(lists).flat()) expect(index).toContain(`href="errors/${code}"`);
  expect(index).toContain('href="guide"');
  const refused = await api.ask("GET", "/errors/target_refused", { key: null });
  expect(refused.body).toMatchObject({ status: 422, also: [{ kind: "attempt" }, { kind: "reason" }] });
  for (const unknown of ["status_200", "status_999x", "toString"]) {
    expect((await api.ask("GET", `/errors/${unknown}`, { key: null })).status).toBe(404);
  }
});
