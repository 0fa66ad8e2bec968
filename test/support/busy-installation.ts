// Two dispatchers and an API as processes, kept busy with receivers that succeed, fail and are down.
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { scopes } from "../../src/base/model/api-keys.ts";
import type { TestDatabase } from "./database.ts";
import { targetsEnv } from "./dispatching.ts";
import { createTestAccount, publish } from "./installation.ts";
import { startReceiver } from "./receiver.ts";
import { type SealpostProcess, startProcess } from "./sealpost-process.ts";

export type BusyInstallation = {
  readonly dispatchers: readonly SealpostProcess[];
  readonly api: SealpostProcess;
  /** What Prometheus reads: the addresses of each job. */
  readonly jobs: Readonly<Record<string, readonly string[]>>;
  /** A round of everything: deliveries that arrive, fail and have no target, and requests of every kind. */
  work(): Promise<void>;
  stop(): Promise<void>;
};

/** `env` for all three. */
export async function startBusyInstallation(
  database: TestDatabase,
  env: Record<string, string> = {},
): Promise<BusyInstallation> {
  const steady = await startReceiver();
  const refusing = await startReceiver({ answers: [{ status: 503 }] });
  const absent = await startReceiver();
  await absent.close();
  const common = {
    DATABASE_URL: database.url,
    ...targetsEnv([steady, refusing, absent]),
    RETRY_WINDOW_SECONDS: "10",
    RATE_LIMIT_REQUESTS: "5",
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
    jobs: {
      "sealpost-dispatch": [first.metricsHost, second.metricsHost],
      "sealpost-serve": [api.metricsHost],
    },
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
    },
  };
}
