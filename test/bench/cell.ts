// A cell with all that it needs on one core: PostgreSQL with a data folder of its own, `serve` and `dispatch`, and
// whoever publishes to it and receives from it.
import { digestSecret } from "../../src/http/api-keys.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";
import { type Bench, type BenchOptions, checkEachOnce, openBench, untilNoneOpen } from "./bench.ts";
import type { BenchDatabase } from "./database.ts";
import { createKeys } from "./keys.ts";
import { startOn } from "./measuring/cores.ts";
import type { AskedProcess } from "./processes/asking.ts";
import type { Published } from "./processes/publisher-process.ts";

export type BenchCell = {
  readonly name: "c1" | "c2";
  readonly bench: Bench;
  readonly database: BenchDatabase;
  readonly api: SealpostProcess;
  readonly dispatcher: SealpostProcess;
  readonly publisher: AskedProcess;
  readonly accountIds: readonly string[];
  /** By account. */
  readonly apiKeys: ReadonlyMap<string, string>;
  /** @throws Error when something was lost, doubled or not recorded */
  stop(): Promise<void>;
  /** After a failure. */
  kill(): Promise<void>;
};

export async function startCell(
  name: BenchCell["name"],
  core: number,
  accounts: number,
  options: BenchOptions,
): Promise<BenchCell> {
  return await startOn([core], async () => {
    const bench = await openBench(options);
    try {
      const database = await bench.server.createDatabase();
      const accountIds = bench.server.accountIds.slice(0, accounts);
      const apiKeys = await createKeys(database, accountIds);
      const api = await bench.startDefaultApi(database);
      const dispatcher = await bench.startDefaultDispatcher(database);
      const publisher = bench.startPublisher(database);
      await bench.behave({ isTiming: true });
      const stop = async () => {
        const { published } = await publisher.ask<Published>("stop");
        await untilNoneOpen(database);
        await checkEachOnce(database, published, (await bench.received()).answered);
        await publisher.stop();
        await api.stop();
        await dispatcher.stop();
        await database.drop();
        await bench.stop();
      };
      const parts = { bench, database, api, dispatcher, publisher, accountIds, apiKeys };
      return { name, ...parts, stop, kill: bench.stop };
    } catch (error) {
      await bench.stop();
      throw error;
    }
  });
}

/** The proxy's map: the SHA-256 of each key and the cell of its account, as `key list --json` tells. */
export function keysMapOf(cells: readonly BenchCell[]): string {
  const lines = cells.flatMap(({ name, apiKeys }) =>
    [...apiKeys.values()].map((key) => `${digestSecret(key).toString("hex")} ${name}\n`),
  );
  return lines.join("");
}
