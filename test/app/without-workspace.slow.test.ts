// Webhook code knows nothing of the workspace: without its folders the rest compiles, starts and delivers.
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cp, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { enter } from "../support/console.ts";
import { createEmptyDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { createTestAccount, createTestKey, SECRETS_KEY } from "../support/installation.ts";
import { startReceiver } from "../support/receiver.ts";
import { ask, type TestApi } from "../support/sealpost-api.ts";
import { runProcess, startProcess } from "../support/sealpost-process.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** What stands in place of the three files that name the workspace. */
const REPLACED: Readonly<Record<string, string>> = {
  "src/base/model/areas.ts": `
export const AREAS = ["webhooks"] as const;
export type Area = (typeof AREAS)[number];
`,
  "src/app/areas.ts": `
import type { ApiPart } from "../api/operations.ts";
import type { QuotaUse } from "../base/model/storage.ts";
import type { GuardPublishing } from "../delivery/analyses-api.ts";
import { type Dependencies, webhooksPart } from "./operations.ts";
export function apiPartsOf(options: { dependencies: Dependencies; [other: string]: unknown }): readonly ApiPart[] {
  return [webhooksPart(options.dependencies)];
}
export function startAreaChecks(_options: object): () => Promise<void> {
  return async () => undefined;
}
export function startAreaWork(_options: object): () => Promise<void> {
  return async () => undefined;
}
export function startAreaSteps(..._options: readonly unknown[]): () => Promise<void> {
  return async () => undefined;
}
export const guardPublishing: GuardPublishing = (pool, _asked, _waitMs, publish) => publish(pool, new Set());
export const eraseFromRuns = async (): Promise<readonly string[]> => [];
export const seesRun = async (): Promise<boolean> => false;
export const idsOfRuns = async (..._of: readonly unknown[]): Promise<ReadonlySet<string>> => new Set();
export async function findMoveHindrance(): Promise<string | null> {
  return null;
}
export async function findQuotas(..._of: readonly unknown[]): Promise<readonly QuotaUse[] | null> {
  return null;
}
export const eraseFromAreas = async (..._of: readonly unknown[]) => ({ gone: 0, left: 0 });
`,
  "test/support/areas.ts": `
import type { AreaTests } from "./area-tests.ts";
export const areaTests: readonly AreaTests[] = [];
`,
};

let copy: string;
beforeAll(async () => {
  copy = await mkdtemp(join(tmpdir(), "sealpost-without-"));
  for (const name of ["package.json", "tsconfig.json", "src", "sql", "test", "scripts"]) {
    await cp(join(root, name), join(copy, name), { recursive: true });
  }
  await symlink(join(root, "node_modules"), join(copy, "node_modules"));
  for (const name of ["src", "sql", "test"]) await rm(join(copy, name, "workspace"), { recursive: true });
  for (const [name, text] of Object.entries(REPLACED)) await writeFile(join(copy, name), text);
});
afterAll(() => rm(copy, { recursive: true }));

test("the rest compiles, its tests included", async () => {
  const compiling = run(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "--noEmit"], {
    cwd: copy,
  });
  await compiling.catch(({ stdout }) => expect(stdout).toBe(""));
});

test("the rest migrates, serves and delivers", async () => {
  await using resources = new AsyncDisposableStack();
  const database = await createEmptyDatabase();
  resources.defer(() => database.drop());
  const receiver = await startReceiver();
  resources.defer(() => receiver.close());
  const main = join(copy, "src/main.ts");
  const secrets = { DATABASE_URL: database.url, SECRETS_KEY: SECRETS_KEY.toString("base64") };
  const env = { ...targetsEnv([receiver]), ...secrets };
  const migrated = await runProcess(["migrate"], { env, main });
  expect(migrated).toMatchObject({ code: 0 });
  expect(JSON.parse(migrated.stdout).applied.filter((name: string) => name.includes("/"))).toEqual([]);
  const processes = [startProcess("serve", env, { main }), startProcess("dispatch", env, { main })];
  for (const starting of processes) {
    const started = await starting;
    resources.defer(async () => void (await started.stop()));
  }
  const { url } = await processes[0]!;
  expect((await fetch(new URL("/readyz", url))).status).toBe(200);

  const { accountId } = await createTestAccount(database, receiver.url("/").href);
  const { apiKey: key } = await createTestKey(database.pool, accountId);
  const id = randomUUID();
  const body = { analysis: { id, status: "succeeded" } };
  expect((await ask(url, "POST", "/v1/analyses", { key, body })).status).toBe(202);
  const [delivered] = await receiver.waitForRequests(1);
  expect(JSON.parse(String(delivered?.body))).toMatchObject({ event: "analysis.succeeded", data: { id } });
  expect((await ask(url, "GET", "/v1/spaces", { key })).status).toBe(404);

  const api = { url, ask: (method, path, options) => ask(url, method, path, { key, ...options }) } as TestApi;
  const hand = await enter(api, { key, permissions: ["webhooks:read", "analyses:read"] });
  const log = await hand.get(`${hand.base}/deliveries`);
  expect([log.status, log.text.includes(id)]).toEqual([200, true]);
  const { body: deliveries } = await ask(url, "GET", "/v1/webhooks/deliveries", { key });
  const [delivery] = deliveries.items as { id: string }[];
  expect((await hand.get(`${hand.base}/deliveries/${delivery?.id}`)).status).toBe(200);
  expect((await hand.get(`${hand.base}/runs/${randomUUID()}`)).status).toBe(404);
});
