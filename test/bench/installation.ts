// Sealpost as an operator starts it: one `dispatch`, one `serve` where HTTP is measured, and somebody who publishes.

import type { SealpostProcess } from "../support/sealpost-process.ts";
import { type Bench, checkEachOnce, countLogged, untilNoneOpen } from "./bench.ts";
import type { BenchDatabase } from "./database.ts";
import { createKeys } from "./keys.ts";
import type { AskedProcess } from "./processes/asking.ts";
import type { Via } from "./processes/publish-calls.ts";
import type { Published } from "./processes/publisher-process.ts";

type Installation = {
  readonly database: BenchDatabase;
  readonly publisher: AskedProcess;
  readonly dispatcher: SealpostProcess;
};
type HttpInstallation = Installation & {
  readonly api: SealpostProcess;
  readonly http: Via;
};

/** Published by SQL alone. Afterwards everything has been delivered and recorded once, or this fails. */
export async function withDispatcher<Result>(
  bench: Bench,
  database: BenchDatabase,
  tell: (line: string) => void,
  work: (installation: Installation) => Promise<Result>,
): Promise<Result> {
  const dispatcher = await bench.startDefaultDispatcher(database);
  const publisher = bench.startPublisher(database);
  await bench.behave({ isTiming: true });
  const { answered: base } = await bench.received();
  const before = await countLogged(database);
  const result = await work({ database, publisher, dispatcher });
  const { published } = await publisher.ask<Published>("stop");
  await untilNoneOpen(database);
  await checkEachOnce(database, published, (await bench.received()).answered - base, before);
  await publisher.stop();
  await dispatcher.stop();
  for (const line of dispatcher.texts) tell(line);
  return result;
}

/** The same with `serve` beside it, and a key for each of the accounts. */
export async function withApi<Result>(
  bench: Bench,
  database: BenchDatabase,
  accountIds: readonly string[],
  tell: (line: string) => void,
  work: (installation: HttpInstallation) => Promise<Result>,
): Promise<Result> {
  const api = await bench.startDefaultApi(database);
  const apiKeys = await createKeys(database, accountIds);
  const http: Via = { kind: "http", url: api.url, apiKeys, whenLimited: "repeated" };
  const result = await withDispatcher(bench, database, tell, (installation) =>
    work({ ...installation, api, http }),
  );
  await api.stop();
  return result;
}
