// What a hostile author writes, in a browser.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import Fastify, { type FastifyInstance } from "fastify";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { writeStorageLimits } from "../../src/base/database/storage.ts";
import { STORAGE_KINDS, type StorageLimits } from "../../src/base/model/storage.ts";
import { sendHtml } from "../../src/http/html-page.ts";
import { renderMarkdown } from "../../src/workspace/visiting/markdown-html.ts";
import { createRendering, RENDERER } from "../../src/workspace/visiting/rendering.ts";
import { startBrowser, type TestBrowser } from "../support/browser.ts";
import type { Json } from "../support/sealpost-api.ts";
import { api, database, usePages, world } from "./page-world.ts";

usePages();

const NEVER = new AbortController().signal;
const NO_LIMIT = Object.fromEntries(STORAGE_KINDS.map((kind) => [kind, null])) as StorageLimits;
const ELSEWHERE = "http://elsewhere.localhost:1";

/** Each tells of itself, if it is let, by a dialog, another address or a request. */
const HTML: Readonly<Record<string, string>> = {
  script: `<script>alert(1); location = "${ELSEWHERE}/script"</script>`,
  handler: `<img src=x onerror="alert(1)">`,
  svg: `<svg onload="alert(1)"><script>alert(1)</script></svg>`,
  frame: `<iframe src="${ELSEWHERE}/frame" srcdoc="<script>parent.alert(1)</script>"></iframe>`,
  style: `<style>body { background: url("${ELSEWHERE}/style") }</style>`,
  "style attribute": `<p style="background: url('${ELSEWHERE}/attribute')">a</p>`,
  stylesheet: `<link rel="stylesheet" href="${ELSEWHERE}/stylesheet">`,
  refresh: `<meta http-equiv="refresh" content="0;url=${ELSEWHERE}/refresh">`,
  base: `<base href="${ELSEWHERE}/">`,
  form: `<form action="${ELSEWHERE}/form"><input name="password" autofocus onfocus="alert(1)"></form>`,
  object: `<object data="${ELSEWHERE}/object"></object><embed src="${ELSEWHERE}/embed">`,
  video: `<video autoplay src="${ELSEWHERE}/video" onerror="alert(1)"></video>`,
  "out of the text": `</main></body></html><script>alert(1)</script>`,
  details: `<details open ontoggle="alert(1)">a</details>`,
};

/** Markdown's own ways, and how others have got around a filter. */
const MARKDOWN: Readonly<Record<string, string>> = {
  ...HTML,
  "javascript link": "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](java&#x73;cript:alert(1))",
  "javascript autolink": "<javascript:alert(1)> <vbscript:alert(1)>",
  "javascript reference": "[a]\n\n[a]: javascript:alert(1)",
  "javascript with a tab": "[a](<java\tscript:alert(1)>) [b](&#1;javascript:alert(1))",
  "data link": "[a](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
  "file link": "[a](file:///etc/passwd) [b](blob:http://x/y) [c](filesystem:http://x/y)",
  image: `![a](${ELSEWHERE}/image.png) ![b](data:image/svg+xml,<svg/onload=alert(1)>)`,
  "image that breaks out": `![" onerror="alert(1)](${ELSEWHERE}/x" onerror="alert(1))`,
  "link that breaks out": `[a](http://x/"onmouseover="alert(1)) <http://x/"onclick="alert(1)>`,
  "title that breaks out": `[a](http://x 'a" onmouseover="alert(1)')`,
  "info that breaks out": '```"><script>alert(1)</script>\ncode\n```',
  "table that breaks out": "|a|\n|-|\n|<script>alert(1)</script>|",
  "linked image": `[![<img src=x onerror=alert(1)>](${ELSEWHERE}/y)](javascript:alert(1))`,
  entities: "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=alert(1)&#62;",
  "half a tag": "<img src=x onerror=alert(1) ",
  comment: "<!-- --><script>alert(1)</script>-->",
};

const TAGS = "a|blockquote|br|code|em|h[2-6]|hr|li|ol|p|pre|s|strong|table|tbody|td|th|thead|tr|ul";
const LEADING = 'href="(?:https?://|mailto:)[^"]*"|rel="nofollow noopener noreferrer"';
const ALLOWED_TAG = new RegExp(`^</?(?:${TAGS})(?: (?:${LEADING}|tabindex="0"|start="\\d+"))* ?/?>$`);

test.each(Object.entries(MARKDOWN))("%s becomes text", (_, markdown) => {
  const html = renderMarkdown(markdown);
  for (const [tag] of html.matchAll(/<[^>]*>/g)) expect(tag).toMatch(ALLOWED_TAG);
});

test("what people write is set as they mean it", () => {
  const html = renderMarkdown(
    [
      "# One\n\n**b** _e_ ~~s~~ `c` <https://a.example> [l](https://b.example)",
      "- 1\n- 2\n\n|a|\n|-|\n|b|\n\n![A cat](cat.png)",
    ].join("\n\n"),
  );
  const rel = 'rel="nofollow noopener noreferrer"';
  expect(html).toContain("<h2>One</h2>\n<p><strong>b</strong> <em>e</em> <s>s</s> <code>c</code>");
  expect(html).toContain(`<a href="https://a.example" ${rel}>https://a.example</a>`);
  expect(html).toContain(`<a href="https://b.example" ${rel}>l</a>`);
  expect(html).toContain("<table>");
  expect(html).toContain("<p>A cat</p>");
});

test.each([
  ["emphasis", `${"*".repeat(131_072)}a${"*".repeat(131_071)}`],
  ["quotes", "> ".repeat(131_072)],
  ["brackets", "![[]()".repeat(43_690)],
  ["strikethrough", "~~a~".repeat(65_536)],
  ["a table", "|a".repeat(131_072)],
])("256 KiB of %s are rendered or refused, and in a thread of their own", async (_, markdown) => {
  const page = await world.newPage(markdown);
  const publishing = api.ask("POST", `/v1/pages/${page}/publish`);
  // Meanwhile others are answered.
  expect((await fetch(new URL("/healthz", api.url))).status).toBe(200);
  const { status } = await publishing;
  if (status === 201) expect((await world.open(await world.newLink(page))).status).toBe(200);
  else expect([422, 503]).toContain(status);
});

/** As an older renderer has left a version. */
async function makeOld(version: Json, markdown: string | null = null): Promise<void> {
  await database.pool.query("alter table workspace.page_versions disable trigger keep_page_version");
  await database.pool.query(
    `update workspace.page_versions set html = '<script>alert(1)</script>', renderer = 0,
       markdown = coalesce($2, markdown) where id = $1`,
    [version.id, markdown],
  );
  await database.pool.query("alter table workspace.page_versions enable trigger keep_page_version");
}

const TOO_LARGE = `[a]: https://${"b".repeat(50_000)}.example\n\n${"[a] ".repeat(100)}`;

test("a text that takes too much is not tried again for a while", async () => {
  const rendering = createRendering(database.pool);
  const took: number[] = [];
  for (let n = 0; n < 2; n++) {
    const startMs = performance.now();
    expect(await rendering.render(api.account.accountId, TOO_LARGE, NEVER)).toBe(null);
    took.push(performance.now() - startMs);
  }
  expect(took[1]).toBeLessThan(took[0]! / 2);
});

describe("what an older renderer has made", () => {
  const RENEWED = "update workspace.page_versions set html";
  const renewals = () => api.statements().filter((text) => text.includes(RENEWED)).length;

  test("is not shown, but what this one makes of the text, once", async () => {
    const { page, version, link } = await world.linked({}, "**New.**");
    const before = renewals();
    expect((await world.open(link)).text).toContain("<p><strong>New.</strong></p>");
    expect(renewals()).toBe(before);
    await makeOld(version);
    for (let n = 0; n < 2; n++) {
      const { status, text } = await world.open(link);
      expect(status).toBe(200);
      expect(text).toContain("<p><strong>New.</strong></p>");
      expect(text).not.toContain("alert");
    }
    expect(renewals()).toBe(before + 1);
    expect((await api.ask("GET", `/v1/pages/${page}/versions/${version.id}`)).body).toEqual({
      ...version,
      markdown: "**New.**",
    });
  });

  test("is shown by an older process as a newer one has made it", async () => {
    const { version, link } = await world.linked();
    const made = "update workspace.page_versions set html = '<p>Newer.</p>', renderer = $2 where id = $1";
    await database.pool.query(made, [version.id, RENDERER + 1]);
    expect((await world.open(link)).text).toContain("<p>Newer.</p>");
  });

  test("is not shown either where the text takes too much now", async () => {
    const { version, link } = await world.linked();
    await makeOld(version, TOO_LARGE);
    for (let n = 0; n < 2; n++) expect((await world.open(link)).status).toBe(503);
    expect(await world.linkOf(link.id)).toMatchObject({ visit_count: 0 });
  });

  test("is shown as this one makes it, and not stored, where the account may store no more", async () => {
    const { version, link } = await world.linked({}, `New. ${"*".repeat(1_000)}`);
    await makeOld(version);
    await writeStorageLimits(database.pool, { ...NO_LIMIT, pages: 1_024 });
    try {
      for (let n = 0; n < 2; n++) expect((await world.open(link)).text).toContain("<p>New. ***");
    } finally {
      await writeStorageLimits(database.pool, NO_LIMIT);
    }
  });
});

test("another renderer, or another version of what it uses, has another number", () => {
  const versionOf = (name: string) => createRequire(import.meta.url)(`${name}/package.json`).version;
  const source = readFileSync(new URL("../../src/workspace/visiting/markdown-html.ts", import.meta.url));
  // When this differs: count RENDERER up, and write down what it is now.
  expect({
    renderer: RENDERER,
    source: createHash("sha256").update(source).digest("hex").slice(0, 16),
    "markdown-it": versionOf("markdown-it"),
    "sanitize-html": versionOf("sanitize-html"),
  }).toEqual({
    renderer: 1,
    source: "b9dbd896f745edc8",
    "markdown-it": "15.0.3",
    "sanitize-html": "2.18.1",
  });
});

test("a short text waits for no more long ones than there are threads, of however many accounts", async () => {
  const rendering = createRendering(database.pool);
  const ended: string[] = [];
  const greedy = Array.from({ length: 8 }, (_, n) =>
    rendering.render(`greedy-${n}`, `${n} ${"[".repeat(20_000)}`, NEVER).finally(() => ended.push("greedy")),
  );
  expect(await rendering.render("victim", "Quick.", NEVER)).toBe("<p>Quick.</p>\n");
  expect(ended.length).toBeLessThanOrEqual(2);
  await Promise.all(greedy);
});

test("addresses are links by themselves, in ten thousand characters and more only those with a scheme", () => {
  const bare = "See https://c.example and ada@d.example. ";
  expect(renderMarkdown(bare).match(/<a href/g)).toHaveLength(2);
  const long = renderMarkdown(`${bare}${"word ".repeat(2_000)}<https://e.example>`);
  expect(long.match(/<a href="[^"]*"/g)).toEqual([
    '<a href="https://c.example"',
    '<a href="https://e.example"',
  ]);
  expect(long).toContain("ada@d.example");
});

test("256 KiB of addresses take no longer than other texts of that length", () => {
  const cpuMs = (text: string) => {
    const before = process.cpuUsage();
    renderMarkdown(text);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  };
  renderMarkdown("warm");
  const others = cpuMs("- a\n".repeat(65_536));
  expect(cpuMs("//a.b/".repeat(43_690))).toBeLessThan(3 * others);
});

test("texts that are rendered again keep nobody else's page waiting for more than one of them", async () => {
  const stranger = await api.newAccount();
  const page = await world.newPage("Quick.", undefined, stranger);
  await makeOld(await world.publish(page, stranger));
  const quick = await world.newLink(page, {}, stranger);
  const slow: Json[] = [];
  // Each takes twentieths of a second, and is another; all of them stay within what a page waits for on a slow machine.
  for (let n = 0; n < 8; n++) {
    const { version, link } = await world.linked({}, `${n} ${"[".repeat(20_000)}`);
    await makeOld(version);
    slow.push(link);
  }
  const readings = () => api.statements().filter((text) => text.includes("select title, case")).length;
  const before = readings();
  let shown = 0;
  const opening = Promise.all(
    slow.map(async (link) => {
      const { status } = await world.open(link);
      shown++;
      return status;
    }),
  );
  await expect.poll(readings).toBeGreaterThan(before);
  expect((await world.open(quick)).status).toBe(200);
  expect(shown).toBeLessThan(4);
  expect(await opening).toEqual(Array(8).fill(200));
});

describe("in Chromium", { tags: ["slow"] }, () => {
  let browser: TestBrowser;
  /** Shows what it is told to; everybody else whom pages ask is here, too. */
  let server: FastifyInstance;
  let port: number;
  let shown = { body: "", policy: "none" };
  const asked: string[] = [];
  beforeAll(async () => {
    server = Fastify();
    server.addHook("onRequest", async ({ host, url }) => {
      if (url !== "/page" && url !== "/favicon.ico") asked.push(`asked ${host.split(":")[0]}${url}`);
    });
    server.get("/page", (_, reply) => {
      const { body, policy } = shown;
      if (policy === "none") return reply.type("text/html").send(body);
      return sendHtml(reply, { title: "Hostile", body }, { isSandboxed: policy === "sandbox" });
    });
    await server.listen({ host: "127.0.0.1", port: 0 });
    ({ port } = server.server.address() as AddressInfo);
    browser = await startBrowser();
  });
  afterAll(async () => {
    await browser.close();
    await server.close();
  });

  const elsewhere = (text: string) => text.replaceAll(ELSEWHERE, `http://elsewhere.localhost:${port}`);

  /** Opens an address; returns what the page did there. @param isToSpeak its link is waited for to say something */
  async function watch(address: string, isToSpeak = false): Promise<string[]> {
    const { context, page } = await browser.newViewer();
    asked.length = 0;
    const done: string[] = [];
    page.on("dialog", async (dialog) => {
      done.push(`said ${dialog.message()}`);
      await dialog.dismiss();
    });
    await page.goto(address);
    const links = page.locator("a[href^=javascript]");
    const spoken = isToSpeak ? page.waitForEvent("dialog") : null;
    if ((await links.count()) > 0) await links.first().click();
    await spoken;
    // Another page in between: what the first has begun has arrived.
    await page.goto("about:blank");
    await context.close();
    return [...done, ...asked];
  }

  const watchHtml = async (body: string, policy: "none" | "ours" | "sandbox", isToSpeak = false) => {
    shown = { body: elsewhere(body), policy };
    return await watch(`http://pages.localhost:${port}/page`, isToSpeak);
  };

  const addressOf = (link: Json) => {
    const address = new URL(String(link.url));
    address.port = new URL(api.url).port;
    return address.href;
  };

  test("a page of everything hostile does nothing but stand there", async () => {
    const { link } = await world.linked({}, elsewhere(Object.values(MARKDOWN).join("\n\n")));
    expect(await watch(addressOf(link))).toEqual([]);
    expect(await world.linkOf(link.id)).toMatchObject({ visit_count: 1 });
  });

  test("what is watched for happens where nothing prevents it", async () => {
    expect(await watchHtml("<script>alert(1)</script>", "none")).toEqual(["said 1"]);
    expect(await watchHtml(HTML.style!, "none")).toEqual(["asked elsewhere.localhost/style"]);
    expect(await watchHtml('<a href="javascript:alert(1)">a</a>', "none", true)).toEqual(["said 1"]);
  });

  // A refresh leads elsewhere under any policy, as a link would.
  test.each(Object.keys(HTML).filter((name) => name !== "refresh"))(
    "a %s does nothing even if it got through: the page's policy is a line of its own, and so is its sandbox",
    async (name) => {
      const body = `${HTML[name]}<a href="javascript:alert(1)">a</a>`;
      for (const policy of ["ours", "sandbox"] as const) expect(await watchHtml(body, policy)).toEqual([]);
    },
  );

  test("a password is typed in and sent, without a script", async () => {
    const { link } = await world.linked({ password: "correct horse" }, "Confidential.");
    const { context, page } = await browser.newViewer({ javaScriptEnabled: false });
    await page.goto(addressOf(link));
    await page.getByLabel("Password").fill("incorrect horse");
    await page.getByRole("button").click();
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("alert").textContent()).toBe("That is not the password.");
    await page.getByLabel("Password").fill("correct horse");
    await page.getByRole("button").click();
    await page.getByText("Confidential.").waitFor();
    expect(await context.cookies()).toEqual([]);
    await context.close();
  });
});
