import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import Fastify, { type FastifyInstance } from "fastify";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Kernel } from "../../src/http/kernel.ts";
import { createPackageRoutes } from "../../src/receivers/packages.ts";
import { openApi } from "../support/open.ts";
import { freePort } from "../support/ports.ts";
import { wheelMakingPython } from "../support/programs.ts";
import { patience } from "../support/time-limits.ts";

const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));
const { api } = await openApi();

let folder: string;
let app: FastifyInstance | undefined;
let admitted: number;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "handed-out-"));
  admitted = 0;
});
afterEach(async () => {
  await app?.close();
  app = undefined;
  rmSync(folder, { recursive: true });
});

/** The pages, with the packages of the test's folder. */
async function start(): Promise<string> {
  app = Fastify();
  const kernel = { admit: async () => void admitted++ } as unknown as Kernel;
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  await createPackageRoutes(url, pathToFileURL(`${folder}/`))(app, kernel);
  await app.listen({ host: "127.0.0.1", port });
  return url;
}

const integrityOf = (bytes: Uint8Array) => `sha512-${createHash("sha512").update(bytes).digest("base64")}`;
type Listed = { items: { name: string; bytes: number; integrity: string; install: string }[]; hint?: string };
const list = async (url: string) => (await (await fetch(`${url}/packages`)).json()) as Listed;

test("lists what was packed, with its digest and how to install it, and hands it out", async () => {
  const url = await start();
  const texts = { "sealpost-receiver-1.0.0.tgz": "one", "sealpost_receiver-1.0.0-py3-none-any.whl": "two" };
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(folder, name), text);
  for (const name of ["notes.txt", "other-1.0.0.tgz"]) writeFileSync(join(folder, name), "not ours");
  const { items } = await list(url);
  expect(items.map(({ name }) => name).sort()).toEqual(Object.keys(texts));
  for (const { name, bytes, integrity, install } of items) {
    const archive = Buffer.from(await (await fetch(`${url}/packages/${name}`)).arrayBuffer());
    expect(archive.toString()).toBe(texts[name as keyof typeof texts]);
    expect([bytes, integrity]).toEqual([archive.length, integrityOf(archive)]);
    expect(install).toBe(`${name.endsWith(".whl") ? "pip" : "npm"} install ${url}/packages/${name}`);
  }
  const page = await fetch(`${url}/packages`, { headers: { accept: "text/html" } });
  const html = await page.text();
  for (const { name, integrity } of items) {
    expect(html).toContain(`href="packages/${name}"`);
    expect(html).toContain(integrity);
  }
  expect(admitted).toBe(4);
});

test("hands out nothing else", async () => {
  const url = await start();
  const inside = join(folder, "inside");
  mkdirSync(inside);
  writeFileSync(join(folder, "notes.txt"), "not ours");
  const wanted = [
    "notes.txt",
    "..%2F..%2Fpackage.json",
    "sealpost-1.tgz",
    "inside",
    "sealpost%2F..%2Fnotes.tgz",
  ];
  for (const name of wanted) expect((await fetch(`${url}/packages/${name}`)).status).not.toBe(200);
});

test("of an installation without any, the API says how they are made", async () => {
  const url = await start();
  rmSync(folder, { recursive: true });
  expect(await list(url)).toEqual({ items: [], hint: expect.stringContaining("npm run pack:all") });
  const page = await fetch(`${url}/packages`, { headers: { accept: "text/html" } });
  expect(await page.text()).toContain("npm run pack:all");
  mkdirSync(folder);
});

test("is a page of the API, which counts who asks for it, and knows no other packages", async () => {
  const answer = await fetch(`${api.url}/packages`);
  expect([answer.status, answer.headers.get("ratelimit")]).toEqual([200, expect.stringContaining("r=")]);
  const unknown = await fetch(`${api.url}/packages/sealpost-unknown-1.0.0.tgz`);
  expect([unknown.status, (await unknown.json()) as object]).toMatchObject([404, { code: "not_found" }]);
});

test("everything that is packed can be installed from it, and is the same when it is packed again", {
  tags: ["slow"],
  timeout: patience(120_000),
}, async () => {
  const url = await start();
  const python = wheelMakingPython();
  const env = { ...process.env, PATH: `${dirname(python)}${delimiter}${process.env.PATH}` };
  const run = async (command: string, args: readonly string[], cwd = folder) =>
    (await promisify(execFile)(command, args, { cwd, env })).stdout;
  const pack = (to: string) => run(process.execPath, [join(REPOSITORY, "scripts/pack.ts"), "all", to]);
  const paths = (await pack(folder)).trim().split("\n");
  const again = join(folder, "again");
  for (const path of (await pack(again)).trim().split("\n"))
    expect(readFileSync(path).equals(readFileSync(path.replace(again, folder))), path).toBe(true);
  const { items } = await list(url);
  expect(items.map(({ name }) => join(folder, name)).sort()).toEqual(paths.sort());
  const named = (part: string) => items.find(({ name }) => name.includes(part))!;

  const project = join(folder, "project");
  mkdirSync(project);
  writeFileSync(join(project, "package.json"), '{"private": true}');
  const [npm = "", ...args] = named("sealpost-receiver-1").install.split(" ");
  await run(npm, [...args, "--no-audit", "--no-fund"], project);
  const { packages } = JSON.parse(readFileSync(join(project, "package-lock.json"), "utf8"));
  const locked = packages["node_modules/sealpost-receiver"];
  expect(locked.integrity).toBe(named("sealpost-receiver-1").integrity);
  const verify = 'console.log(typeof require("sealpost-receiver").verifyWebhook)';
  expect(await run(process.execPath, ["--eval", verify], project)).toBe("function\n");

  const [, ...wheel] = named(".whl").install.split(" ");
  const quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--target", "python"];
  await run(python, ["-m", "pip", ...wheel, ...quiet], project);
  const imported = "import sealpost_receiver as it; print(it.verify_webhook.__name__)";
  expect(await run(python, ["-c", `import sys; sys.path.insert(0, "python"); ${imported}`], project)).toBe(
    "verify_webhook\n",
  );

  await run("sh", ["-c", named("-go-").install], project);
  expect(readFileSync(join(project, "sealpost-receiver", "go.mod"), "utf8")).toContain("module ");
});
