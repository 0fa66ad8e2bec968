// Two cells at work: an API, a dispatcher and a sequencer each, and one receiver, which fails now and then.
import { startSequencer } from "../../src/feed/sequencer.ts";
import { createTestCells, TARGET_KEY, type TestCells } from "../support/cells.ts";
import type { TestDatabase } from "../support/database.ts";
import { startTestDispatcher, unsafeAllowed } from "../support/dispatching.ts";
import { allowTargets, SECRETS_KEY } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

export type WorkingCell = { readonly database: TestDatabase; readonly api: TestApi };

export type World = {
  readonly cells: TestCells;
  readonly source: WorkingCell;
  readonly target: WorkingCell;
  readonly receiver: Receiver;
  /** Paths whose posts fail for now, by chance. */
  readonly failing: Map<string, () => boolean>;
  close(): Promise<void>;
};

export async function startWorld(): Promise<World> {
  const cells = await createTestCells();
  const failing = new Map<string, () => boolean>();
  const receiver = await startReceiver({
    handler: ({ path }) => ({ status: failing.get(path)?.() ? 503 : 200, delayMs: 5 }),
  });
  await using resources = new AsyncDisposableStack();
  const start = async (database: TestDatabase, key: Uint8Array): Promise<WorkingCell> => {
    const env = {
      SECRETS_KEY: Buffer.from(key).toString("base64"),
      RETRY_WINDOW_SECONDS: "60",
      UNSAFE_ALLOWED_TARGETS: unsafeAllowed([receiver]).join(","),
    };
    await allowTargets(database.pool, unsafeAllowed([receiver]));
    const sequencer = startSequencer(database.pool, () => undefined);
    resources.defer(() => sequencer.stop());
    const dispatcher = startTestDispatcher(database, [receiver], env, {
      onPublished: () => sequencer.tell(),
    });
    resources.defer(() => dispatcher.stop());
    const api = await startTestApi(database, env);
    resources.defer(() => api.close());
    return { database, api };
  };
  const source = await start(cells.source, SECRETS_KEY);
  const target = await start(cells.target, TARGET_KEY);
  const started = resources.move();
  return {
    cells,
    source,
    target,
    receiver,
    failing,
    close: async () => {
      await started.disposeAsync();
      await receiver.close();
      await cells.drop();
    },
  };
}
