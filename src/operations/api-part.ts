import type { AddRoutes } from "../api/kernel.ts";
import type { OpenApiInfo } from "../api/openapi.ts";
import type { Operation } from "../api/operation.ts";
import type { ProblemCatalogue } from "../api/problems.ts";
import type { FindOrigin } from "../model/analysis-origin.ts";

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
  /** Lets go of what the operations hold, once nothing is asked of them any more; absent: they hold nothing. */
  readonly close?: () => Promise<void>;
};
