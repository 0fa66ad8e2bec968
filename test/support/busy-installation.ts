// Two dispatchers and an API as processes, kept busy with receivers that succeed, fail and are down.
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/config/read-config.ts";
import { scopes } from "../../src/model/api-keys.ts";
import { startSealpost } from "./command.ts";
import type { TestDatabase } from "./database.ts";
import { unsafeAllowed } from "./dispatching.ts";
import { createTestAccount, publish, SECRETS_KEY } from "./installation.ts";
import { startReceiver } from "./receiver.ts";

export type RunningProcess = {
  readonly url: string;
  /** `http://host:port` of its metrics. */
  readonly metricsUrl: string;
  readonly child: ChildProcess;
  /** Everything that it has written so far, both outputs. */
  output(): string;
  /** Asks it to end; resolves to its exit code. */
  stop(): Promise<number | null>;
};

/** Starts `serve` or `dispatch` and resolves when it reports that it is ready. */
export async function startProcess(
  command: "serve" | "dispatch",
  env: Record<string, string>,
): Promise<RunningProcess> {
  const child = startSealpost([command], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { PORT: "0", SECRETS_KEY: SECRETS_KEY.toString("base64"), ...env },
  });
  const written: string[] = [];
  child.stderr?.setEncoding("utf8").on("data", (text: string) => written.push(text));
  const closed = once(child, "close").then(([code]) => code as number | null);
  const ready = new Promise<{ url?: string; metrics_url: string }>((resolve, reject) => {
    if (child.stdout === null) return reject(new Error("no output"));
    createInterface(child.stdout).on("line", (line) => {
      written.push(`${line}\n`);
      const said = JSON.parse(line);
      if (said.metrics_url !== undefined) resolve(said);
    });
    closed.then((code) => reject(new Error(`${command} has ended with ${code}: ${written.join("")}`)));
  });
  const { url = "", metrics_url } = await ready;
  return {
    url,
    metricsUrl: metrics_url,
    child,
    output: () => written.join(""),
    stop: async () => {
      if (child.exitCode === null) child.kill("SIGTERM");
      return await closed;
    },
  };
}

export type BusyInstallation = {
  readonly dispatchers: readonly RunningProcess[];
  readonly api: RunningProcess;
  /** A round of everything: deliveries that arrive, fail and have no target, and requests of every kind. */
  work(): Promise<void>;
  stop(): Promise<void>;
};

/** `env` for all three. */
export async function startBusyInstallation(
  database: TestDatabase,
  env: Record<string, string> = {},
): Promise<BusyInstallation> {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-busy-"));
  const steady = await startReceiver();
  const refusing = await startReceiver({ answers: [{ status: 503 }] });
  const absent = await startReceiver();
  await absent.close();
  const caFile = join(folder, "ca.pem");
  writeFileSync(caFile, steady.caPem);
  const common = {
    DATABASE_URL: database.url,
    TARGET_CA_FILE: caFile,
    UNSAFE_ALLOWED_TARGETS: unsafeAllowed([steady, refusing, absent]).join(","),
    RETRY_WINDOW_SECONDS: "10",
    RATE_LIMIT_REQUESTS: "5",
    RATE_LIMIT_WINDOW_SECONDS: "2",
    ...env,
  };
  const [first, second, api] = await Promise.all([
    startProcess("dispatch", common),
    startProcess("dispatch", common),
    startProcess("serve", common),
  ]);
  const accounts = await Promise.all([
    createTestAccount(database, steady.url("/").href),
    createTestAccount(database, refusing.url("/").href),
    createTestAccount(database, absent.url("/").href),
    createTestAccount(database),
  ]);
  const wish = { name: null, scopes, expiresInSeconds: null };
  const { accountId } = accounts[0]!;
  const { apiKey } = await createApiKey(database.pool, readConfig({}), { ...wish, accountId });
  let rounds = 0;

  async function ask(path: string, key?: string): Promise<void> {
    const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    await (await fetch(new URL(path, api.url), { headers })).arrayBuffer();
  }

  return {
    dispatchers: [first, second],
    api,
    work: async () => {
      rounds += 1;
      for (const account of accounts) {
        await publish(database.pool, account.accountId, `{"id":"a-${rounds}","status":"succeeded"}`);
      }
      await ask("/v1/analyses/none", apiKey);
      await ask("/v1/webhooks/deliveries", apiKey);
      await ask("/v1/webhooks/deliveries");
      await ask("/nowhere");
      await ask("/healthz");
    },
    stop: async () => {
      await Promise.all([first.stop(), second.stop(), api.stop()]);
      await Promise.all([steady.close(), refusing.close()]);
      rmSync(folder, { recursive: true });
    },
  };
}
