import { execFile, execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createTestAccount, rowsOf } from "../support/installation.ts";
import { findProgram } from "../support/programs.ts";
import { patience } from "../support/time-limits.ts";

// Both packages in projects of their own outside the repository, so that nothing of it is found by chance, and copied,
// because Node and compilers treat a link as what it leads to.

const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));
const COMPILER = join(REPOSITORY, "node_modules/typescript/bin/tsc");
const run = promisify(execFile);

const folder = mkdtempSync(join(tmpdir(), "sealpost-packages-"));
let database: TestDatabase;
let accountId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createTestAccount(database));
  for (const name of ["receiver", "publish"]) {
    const script = join(REPOSITORY, "scripts/pack.ts");
    const archive = execFileSync(process.execPath, [script, name, folder], { encoding: "utf8" }).trim();
    for (const project of ["bare", "pipeline"]) {
      const installed = join(folder, project, "node_modules", `sealpost-${name}`);
      mkdirSync(installed, { recursive: true });
      execFileSync("tar", ["-xzf", archive, "-C", installed, "--strip-components=1"]);
    }
  }
  for (const name of ["pg", "@types/pg", "@types/node"]) install(name, new Set());
}, patience(60_000));
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await database.drop();
});

/** Copies a package of this repository, and what it depends on, into the pipeline's project. */
function install(name: string, seen: Set<string>): void {
  if (seen.has(name)) return;
  seen.add(name);
  const source = join(REPOSITORY, "node_modules", name);
  cpSync(source, join(folder, "pipeline", "node_modules", name), { recursive: true });
  const { dependencies = {} } = JSON.parse(readFileSync(join(source, "package.json"), "utf8"));
  for (const needed of Object.keys(dependencies)) install(needed, seen);
}

type Setting = { readonly format: "module" | "commonjs"; readonly moduleResolution: string };

const settings: readonly Setting[] = ["nodenext", "node16", "bundler"].flatMap((moduleResolution) => [
  { format: "module", moduleResolution },
  { format: "commonjs", moduleResolution },
]);

/** Compiles the program as strictly as a project can; returns the compiled file. */
async function compile(project: string, setting: Setting, source: string, types: readonly string[]) {
  const { format, moduleResolution } = setting;
  const place = join(folder, project, `${moduleResolution}-${format}`);
  const bundled = format === "module" ? "esnext" : "commonjs";
  const compilerOptions = {
    target: "es2022",
    lib: ["es2022"],
    module: moduleResolution === "bundler" ? bundled : moduleResolution,
    moduleResolution,
    types,
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: false,
    rootDir: ".",
    outDir: "out",
  };
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, "package.json"), JSON.stringify({ type: format, private: true }));
  writeFileSync(join(place, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["program.ts"] }));
  writeFileSync(join(place, "program.ts"), source);
  const { stdout } = await run(process.execPath, [COMPILER], { cwd: place }).catch((error) => error);
  expect(stdout, "what the compiler says").toBe("");
  return join(place, "out", "program.js");
}

const BARE = `
import {
  createMemoryInbox, importSigningKey, signatureHeader, verifyWebhook, type WebhookEvent, WebhookVerificationError,
} from "sealpost-receiver";
import { verifyWebhook as verifyOnTheWeb } from "sealpost-receiver/web";
import { type Publication, publish, PublishRefusedError, type PublishingDatabase } from "sealpost-publish";

export async function use(database: PublishingDatabase, publications: readonly Publication[]) {
  const key = importSigningKey("whsec_x");
  const header = signatureHeader({ timestampSeconds: 1, body: new Uint8Array(), keys: [key] });
  const event: WebhookEvent = verifyWebhook({ rawBody: new Uint8Array(), header: undefined, secret: "whsec_x" });
  if (event.event === "analysis.failed") event.data.status satisfies "failed";
  const input = { rawBody: new ArrayBuffer(1), header: null, secrets: ["whsec_x"], now: new Date() };
  const again: WebhookEvent = await verifyOnTheWeb(input);
  // @ts-expect-error a body already parsed
  verifyWebhook({ rawBody: { id: "1" }, header, secret: "whsec_x" });
  // @ts-expect-error a body already decoded
  await verifyOnTheWeb({ ...input, rawBody: "{}" });
  try { await createMemoryInbox().acceptOnce(event.id, async () => {}); }
  catch (error) { if (error instanceof WebhookVerificationError && error.code === "header_missing") throw error; }
  try {
    await publish(database, publications, { traceparent: null });
    // @ts-expect-error an unknown member
    await publish(database, [{ accountId: "", analysis: "", webhook_url: "" }]);
  } catch (error) {
    if (error instanceof PublishRefusedError && error.code === "target_refused") throw error;
  }
  return [event, again];
}
`;

const PIPELINE = `
import pg from "pg";
import { publish, PublishRefusedError } from "sealpost-publish";
import { importSigningKey, signatureHeader, verifyWebhook } from "sealpost-receiver";
import { verifyWebhook as verifyOnTheWeb } from "sealpost-receiver/web";

async function main([url = "", accountId = "", id = ""]: readonly string[]) {
  const pool = new pg.Pool({ connectionString: url });
  const client = await pool.connect();
  await client.query("begin");
  const analysis = JSON.stringify({ id, status: "succeeded" });
  const [deliveryId] = await publish(client, [{ accountId, analysis, webhookUrl: "https://hooks.example.com/in" }]);
  await client.query("commit");
  client.release();
  const codes: (string | number)[] = [];
  const odd = '{"id":"x","status":"odd"}';
  for (const wrong of [{ analysis: "{" }, { analysis: odd }, { webhookUrl: "http://a.example.com" }]) {
    try {
      await publish(pool, [{ accountId, analysis }, { accountId, analysis, ...wrong }]);
    } catch (error) {
      if (!(error instanceof PublishRefusedError)) throw error;
      codes.push(error.code, error.index);
    }
  }
  await pool.end();

  const data = { id, status: "succeeded" };
  const event = { id: deliveryId, event: "analysis.succeeded", created_at: new Date().toISOString(), data };
  const rawBody = Buffer.from(JSON.stringify(event));
  const timestampSeconds = Math.floor(Date.now() / 1_000);
  const header = signatureHeader({ timestampSeconds, body: rawBody, keys: [importSigningKey("whsec_x")] });
  const verified = verifyWebhook({ rawBody, header, secret: "whsec_x" });
  const verifiedAgain = await verifyOnTheWeb({ rawBody, header, secret: "whsec_x" });
  console.log(JSON.stringify({ deliveryId, codes, verified: [verified.data.id, verifiedAgain.data.id] }));
}
void main(process.argv.slice(2));
`;

test.each(["receiver", "publish"])("the README of sealpost-%s names the archive that it is in", (name) => {
  const installed = join(folder, "bare", "node_modules", `sealpost-${name}`);
  const { version } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  const readme = readFileSync(join(installed, "README.md"), "utf8");
  expect(readme).toContain(`npm install ./sealpost-${name}-${version}.tgz`);
});

/** The machine's own Node, which is often an older one, and the one that runs the tests. */
const nodes = [...new Set([findProgram("node") ?? process.execPath, process.execPath])];

describe.each(settings)("in a strict project, $format under $moduleResolution", (setting) => {
  test("compile without the types of Node or pg", async () => {
    await compile("bare", setting, BARE, []);
  });

  test("publish and verify", { timeout: patience(60_000) }, async () => {
    const program = await compile("pipeline", setting, PIPELINE, ["node"]);
    const compiled = readFileSync(program, "utf8");
    expect(/\brequire\("sealpost-publish"\)/.test(compiled)).toBe(setting.format === "commonjs");
    for (const [at, node] of nodes.entries()) {
      const id = `${setting.moduleResolution}-${setting.format}-${at}`;
      const { stdout } = await run(node, [program, database.url, accountId, id]);
      const { deliveryId, ...told } = JSON.parse(stdout);
      expect(told).toEqual({
        codes: ["invalid_analysis", 1, "invalid_analysis", 1, "target_refused", 1],
        verified: [id, id],
      });
      const rows = await rowsOf(database.pool, "deliveries");
      expect(rows).toContainEqual(expect.objectContaining({ id: deliveryId, analysis_id: id }));
    }
  });
});
