// What is said at the start where documents cannot be kept. Webhooks need none.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { freePort } from "../support/ports.ts";
import { startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const TOLD = "documents cannot be stored or read now";

let database: TestDatabase;
let folder: string;
beforeAll(async () => {
  database = await createTestDatabase();
  folder = await mkdtemp(join(tmpdir(), "sealpost-starting-"));
  await writeFile(join(folder, "objects"), "");
});
afterAll(async () => {
  await database.drop();
  await rm(folder, { recursive: true });
});

const files = async () => ({ STATE_DIR: folder });
const s3 = async () => ({
  STATE_DIR: join(folder, "unused"),
  OBJECT_STORE_URL: `s3://documents?endpoint=http://127.0.0.1:${await freePort()}&path_style=true`,
  AWS_ACCESS_KEY_ID: "AKIAEXAMPLE",
  AWS_SECRET_ACCESS_KEY: "planted-secret-of-the-object-store",
});

describe.each(["serve", "dispatch"] as const)("%s", (command) => {
  test.each([
    [
      "a folder that is none",
      files,
      "check the folder STATE_DIR/objects",
      /could not use the folder .*keys: /,
    ],
    [
      "an S3 that does not answer",
      s3,
      "check OBJECT_STORE_URL and its keys",
      /could not list .*ECONNREFUSED/,
    ],
  ])("starts with %s, and says what to check", async (_, away, mend, why) => {
    const running = await startProcess(command, { DATABASE_URL: database.url, ...(await away()) });
    const told = () =>
      running
        .output()
        .split("\n")
        .filter((line) => line.includes(TOLD));
    await expect.poll(told, { timeout: patience(20_000) }).toHaveLength(1);
    const { level, msg, err } = JSON.parse(told()[0]!);
    expect(level).toBe("warn");
    expect(msg).toContain(mend);
    expect(err.message).toMatch(why);
    expect(running.output()).not.toMatch(/planted-secret|AKIA/);
    expect((await fetch(new URL("/readyz", running.metricsUrl))).status).toBe(200);
    expect(await running.stop()).toBe(0);
  });
});

test("without the workspace nobody looks", async () => {
  const env = { DATABASE_URL: database.url, AREAS: "webhooks", ...(await files()) };
  const running = await startProcess("serve", env);
  expect(await running.stop()).toBe(0);
  expect(running.output()).not.toContain(TOLD);
});
