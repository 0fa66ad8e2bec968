// Real processes that run workflows: the API in the test's own, dispatchers in others.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setEndpoint } from "../../../src/store/endpoints.ts";
import { writeSettings } from "../../../src/store/publications.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { unsafeAllowed } from "../../support/dispatching.ts";
import { type Receiver, type ReceiverOptions, startReceiver } from "../../support/receiver.ts";
import { startTestApi, type TestApi } from "../../support/sealpost-api.ts";
import { type RunningProcess, startProcess } from "../../support/sealpost-processes.ts";
import { documentsOf } from "./documents.ts";
import { runsOf } from "./runs.ts";

export type RunSite = {
  readonly database: TestDatabase;
  readonly api: TestApi;
  readonly receiver: Receiver;
  readonly documents: ReturnType<typeof documentsOf>;
  readonly runs: ReturnType<typeof runsOf>;
  startDispatcher(env?: Record<string, string>): Promise<RunningProcess>;
  /** Another API on the same database. */
  startServe(env?: Record<string, string>): Promise<RunningProcess>;
  close(): Promise<void>;
};

/** The account's endpoint is the receiver. Nothing works on runs until a dispatcher is started. */
export async function openRunSite(options: ReceiverOptions = {}): Promise<RunSite> {
  const database = await createTestDatabase();
  const receiver = await startReceiver(options);
  const folder = await mkdtemp(join(tmpdir(), "sealpost-runs-"));
  const caFile = join(folder, "ca.pem");
  await writeFile(caFile, receiver.caPem);
  const unsafeAllowedTargets = unsafeAllowed([receiver]);
  const env = { TARGET_CA_FILE: caFile, UNSAFE_ALLOWED_TARGETS: unsafeAllowedTargets.join(",") };
  await writeSettings(database.pool, { analysisBytesMax: 1_048_576, unsafeAllowedTargets });
  const api = await startTestApi(database, env);
  await setEndpoint(database.pool, api.account.accountId, receiver.url("/endpoint").href);
  const processEnv = { ...env, STATE_DIR: api.stateDir };
  return {
    database,
    api,
    receiver,
    documents: documentsOf(api.ask),
    runs: runsOf(api.ask),
    startDispatcher: (more = {}) => startProcess("dispatch", database, { ...processEnv, ...more }),
    startServe: (more = {}) =>
      startProcess("serve", database, { ...processEnv, RATE_LIMIT_REQUESTS: "1000000", ...more }),
    close: async () => {
      await api.close();
      await receiver.close();
      await database.drop();
      await rm(folder, { recursive: true });
    },
  };
}

/** The processes that it has started, such as that of a dispatcher's steps. */
export async function childrenOf({ child: { pid } }: RunningProcess): Promise<readonly number[]> {
  const ids = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8").catch(() => "");
  return ids
    .split(" ")
    .filter((text) => text !== "")
    .map(Number);
}
