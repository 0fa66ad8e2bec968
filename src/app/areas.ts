import type { Pool } from "pg";
import type { Config } from "../config/config.ts";
import type { Area } from "../model/areas.ts";
import type { ApiPart } from "../operations/api-part.ts";
import { webhooksPart } from "../operations/operations.ts";
import type { Dependencies } from "../operations/sealpost-operation.ts";
import { openObjectStore } from "../workspace/objects/open-object-store.ts";
import { openedLater } from "../workspace/objects/opened-later.ts";
import { workspacePart } from "../workspace/operations/workspace-part.ts";
import { hasSpaces } from "../workspace/store/account-spaces.ts";

export type AreaOptions = {
  readonly config: Config;
  readonly dependencies: Dependencies;
  /** What an area needs besides the database did not answer. */
  readonly onAway: (error: Error) => void;
};

/** What each area adds to the API. This file alone knows the workspace; a test builds the service without it. */
const apiParts: Readonly<Record<Area, (options: AreaOptions) => ApiPart>> = {
  webhooks: ({ dependencies }) => webhooksPart(dependencies),
  workspace: ({ config, dependencies: { pool }, onAway }) => {
    const objects = openedLater(() => openObjectStore(config));
    return workspacePart({ pool, objects, onObjectsAway: onAway });
  },
};

/** In the order of the areas. */
export function apiPartsOf(options: AreaOptions): readonly ApiPart[] {
  return options.config.areas.map((area) => apiParts[area](options));
}

/** Why the account cannot be moved to another cell, in a sentence; null: it can. Whatever areas are on. */
export async function findMoveHindrance(pool: Pool, accountId: string): Promise<string | null> {
  if (!(await hasSpaces(pool, accountId))) return null;
  return `Account ${accountId} has spaces, and stored documents cannot be moved to another cell yet.`;
}
