// Real processes that run workflows: the API in the test's own, dispatchers in others.
import { setEndpoint } from "../../../src/delivery/endpoint-sql.ts";
import { writeSettings } from "../../../src/publish/publish-call-sql.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { targetsEnv, unsafeAllowed } from "../../support/dispatching.ts";
import { type Receiver, type ReceiverOptions, startReceiver } from "../../support/receiver.ts";
import { startTestApi, type TestApi } from "../../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../../support/sealpost-process.ts";
import { documentsOf } from "./documents.ts";
import { runsOf } from "./runs.ts";

export type RunSite = {
  readonly database: TestDatabase;
  readonly api: TestApi;
  readonly receiver: Receiver;
  readonly documents: ReturnType<typeof documentsOf>;
  readonly runs: ReturnType<typeof runsOf>;
  startDispatcher(env?: Record<string, string>): Promise<SealpostProcess>;
  /** Another API on the same database. */
  startServe(env?: Record<string, string>): Promise<SealpostProcess>;
  close(): Promise<void>;
};

/** The account's endpoint is the receiver. Nothing works on runs until a dispatcher is started. */
export async function openRunSite(options: ReceiverOptions = {}): Promise<RunSite> {
  const database = await createTestDatabase();
  const receiver = await startReceiver(options);
  const env = targetsEnv([receiver]);
  const unsafeAllowedTargets = unsafeAllowed([receiver]);
  await writeSettings(database.pool, { analysisBytesMax: 1_048_576, unsafeAllowedTargets });
  const api = await startTestApi(database, env);
  await setEndpoint(database.pool, api.account.accountId, receiver.url("/endpoint").href);
  const processEnv = { DATABASE_URL: database.url, ...env, STATE_DIR: api.stateDir };
  return {
    database,
    api,
    receiver,
    documents: documentsOf(api.ask),
    runs: runsOf(api.ask),
    startDispatcher: (more = {}) => startProcess("dispatch", { ...processEnv, ...more }),
    startServe: (more = {}) =>
      startProcess("serve", { ...processEnv, RATE_LIMIT_REQUESTS: "1000000", ...more }),
    close: async () => {
      await api.close();
      await receiver.close();
      await database.drop();
    },
  };
}
