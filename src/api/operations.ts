import type { Origins } from "../base/model/origins.ts";
import type { FindSpaces } from "../base/model/reader.ts";
import type { QuotaUse, StorageUse } from "../base/model/storage.ts";
import { operationDefiners } from "../http/define-operation.ts";
import type { AddRoutes } from "../http/kernel.ts";
import type { OpenApiInfo } from "../http/openapi.ts";
import type { Operation, Transaction } from "../http/operation.ts";
import type { ProblemCatalogue } from "../http/problems.ts";
import type { DomainCode } from "./problems.ts";

/** The ways to declare operations of this service. @param tag their heading in the reference */
export const operationsOf = (tag: string) => operationDefiners<DomainCode>(tag);

/** What one area of the service adds to its API. */
export type ApiPart = Pick<OpenApiInfo, "pages" | "sends" | "tags"> & {
  /** What it is for, in a sentence. */
  readonly about: string;
  /** In the order of the reference. */
  readonly operations: readonly Operation[];
  /** Codes that they add to those of src/http/problems.ts. */
  readonly problems: ProblemCatalogue;
  /** Pages beside the operations; absent: it has none. */
  readonly addRoutes?: AddRoutes;
  /** What made analyses, for those that the area makes itself; absent: it makes none. */
  readonly origins?: Origins;
  /** What an account stores of the area's; absent: nothing but what is counted for every installation. */
  readonly readStorage?: (accountId: string) => Promise<readonly StorageUse[]>;
  /** And what it has of its quotas; absent: the area has none. */
  readonly readQuotas?: (accountId: string) => Promise<readonly QuotaUse[]>;
  /** Spaces of the area that a user is a member of; absent: it has none. */
  readonly findSpaces?: FindSpaces<Transaction>;
  /** Lets go of what the operations hold, once nothing is asked of them any more; absent: they hold nothing. */
  readonly close?: () => Promise<void>;
};
