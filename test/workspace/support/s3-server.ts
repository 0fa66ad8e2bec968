// A real S3 server (versitygw, which .ci/install-go-programs builds), on loopback, with its files in a folder.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { S3Options } from "../../../src/workspace/objects/s3-connection.ts";
import { freePort } from "../../support/ports.ts";
import { installedGoProgram } from "../../support/programs.ts";
import { patience } from "../../support/time-limits.ts";

export type S3Server = {
  readonly options: S3Options;
  close(): Promise<void>;
};

const BUCKET = "documents";
const READY_WITHIN_MS = 20_000;

/** Starts one with an empty bucket. `folder` is to be on a file system with extended attributes. */
export async function startS3Server(folder: string): Promise<S3Server> {
  const port = await freePort();
  const keys = { accessKeyId: "AKIATESTOFOBJECTS", secretAccessKey: "planted-secret-of-the-object-store" };
  for (const name of ["iam", join("data", BUCKET)]) mkdirSync(join(folder, name), { recursive: true });
  const child = spawn(
    installedGoProgram("versitygw"),
    [
      "--port",
      `127.0.0.1:${port}`,
      "--health",
      "/health",
      "--quiet",
      "--keep-alive",
      "--iam-dir",
      join(folder, "iam"),
    ].concat("posix", join(folder, "data")),
    {
      env: { ROOT_ACCESS_KEY_ID: keys.accessKeyId, ROOT_SECRET_ACCESS_KEY: keys.secretAccessKey },
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(-4_000);
  });
  const exited = once(child, "exit");
  const endpoint = `http://127.0.0.1:${port}`;
  const startedAt = performance.now();
  const isReady = () =>
    fetch(`${endpoint}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) {
    const isLate = performance.now() - startedAt > patience(READY_WITHIN_MS);
    if (child.exitCode !== null || isLate) throw new Error(`versitygw is not ready: ${said}`);
    await wait(50);
  }
  return {
    options: { bucket: BUCKET, endpoint, region: "us-east-1", isPathStyle: true, ...keys },
    close: async () => {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
