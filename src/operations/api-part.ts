import type { AddRoutes } from "../api/kernel.ts";
import type { OpenApiInfo } from "../api/openapi.ts";
import type { Operation, Transaction } from "../api/operation.ts";
import type { ProblemCatalogue } from "../api/problems.ts";
import type { FindOrigin } from "../model/analysis-origin.ts";
import type { FindSpaces } from "../model/reader.ts";
import type { StorageUse } from "../model/storage.ts";

/** What one area of the service adds to its API. */
export type ApiPart = Pick<OpenApiInfo, "pages" | "sends" | "tags"> & {
  /** What it is for, in a sentence. */
  readonly about: string;
  /** In the order of the reference. */
  readonly operations: readonly Operation[];
  /** Codes that they add to those of src/operations/problems.ts. */
  readonly problems: ProblemCatalogue;
  /** Pages beside the operations; absent: it has none. */
  readonly addRoutes?: AddRoutes;
  /** What made an analysis, for those that the area makes itself; absent: it makes none. */
  readonly findOrigin?: FindOrigin;
  /** What an account stores of the area's; absent: nothing but what is counted for every installation. */
  readonly readStorage?: (accountId: string) => Promise<readonly StorageUse[]>;
  /** Spaces of the area that a user is a member of; absent: it has none. */
  readonly findSpaces?: FindSpaces<Transaction>;
  /** Lets go of what the operations hold, once nothing is asked of them any more; absent: they hold nothing. */
  readonly close?: () => Promise<void>;
};
