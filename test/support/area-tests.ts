import type { KnownValues } from "./api-fuzz.ts";
import type { Asked, TestAccount, TestApi } from "./sealpost-api.ts";

/** Ids that requests have made, by the keys of their operations; `user`: another one of the account. */
export type Made = Record<string, string>;

/** What the tests of all operations have to know of an area's. */
export type AreaTests = {
  /** Lines of key, method, path, scope, risk, effect and mode. */
  readonly declared: string;
  /** Codes that its operations raise besides the kernel's. */
  readonly codes: readonly string[];
  /** Its operations whose answers hold a secret. */
  readonly secrets: readonly string[];
  /** A request of every write that succeeds, in this order: what a later one needs, an earlier one makes. */
  readonly writes: Readonly<Record<string, (ask: TestApi["ask"], made: Made) => Promise<Asked>>>;
  /** The same of every read, after those. */
  readonly reads: AreaTests["writes"];
  /** Bodies that its writes take. */
  readonly bodies: Readonly<Record<string, unknown>>;
  /** Tables with an account's rows, with their schema. */
  readonly tables: readonly string[];
  /** Makes things of the account. Returns their ids by the names of path parameters. */
  makeThings(api: TestApi, owner: TestAccount): Promise<Readonly<Record<string, string>>>;
  /** For requests made from the document alone, by the keys of operations. */
  knownValues(api: TestApi): Promise<Readonly<Record<string, KnownValues>>>;
};
