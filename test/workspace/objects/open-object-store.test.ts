import { spawn } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { untilFinished } from "../../support/child-processes.ts";

const folder = await mkdtemp(join(tmpdir(), "sealpost-objects-"));
afterAll(() => rm(folder, { recursive: true }));

const watch = new URL("../../support/load-watch.mjs", import.meta.url).href;
const program = fileURLToPath(new URL("./processes/open-store.ts", import.meta.url));

async function packagesLoaded(env: Record<string, string>): Promise<string[]> {
  const child = spawn(process.execPath, ["--import", watch, program], { env: { ...env, STATE_DIR: folder } });
  const { code, stderr } = await untilFinished(child);
  expect(code, stderr).toBe(0);
  return JSON.parse(stderr) as string[];
}

test("without OBJECT_STORE_URL objects are files in STATE_DIR, and nothing of S3 is loaded", async () => {
  const packages = await packagesLoaded({});
  expect(packages).toContain("zod");
  expect(packages.filter((name) => /aws|smithy/.test(name))).toEqual([]);
  expect((await readdir(join(folder, "objects"))).sort()).toEqual(["keys", "unfinished"]);
});

test("with it they are in S3", async () => {
  const env = {
    OBJECT_STORE_URL: "s3://documents?region=eu-central-1",
    AWS_ACCESS_KEY_ID: "AKIAEXAMPLE",
    AWS_SECRET_ACCESS_KEY: "planted-secret",
  };
  expect(await packagesLoaded(env)).toContain("@aws-sdk/client-s3");
});
