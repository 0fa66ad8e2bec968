import type { Pool } from "pg";
import type { Area } from "../model/areas.ts";
import type { ApiPart } from "../operations/api-part.ts";
import { webhooksPart } from "../operations/operations.ts";
import type { Dependencies } from "../operations/sealpost-operation.ts";
import { workspacePart } from "../workspace/operations/workspace-part.ts";
import { hasSpaces } from "../workspace/store/account-spaces.ts";

/** What each area adds to the API. This file alone knows the workspace; a test builds the service without it. */
const apiParts: Readonly<Record<Area, (dependencies: Dependencies) => ApiPart>> = {
  webhooks: webhooksPart,
  workspace: workspacePart,
};

/** In the order of the areas. */
export function apiPartsOf(areas: readonly Area[], dependencies: Dependencies): readonly ApiPart[] {
  return areas.map((area) => apiParts[area](dependencies));
}

/** Why the account cannot be moved to another cell, in a sentence; null: it can. Whatever areas are on. */
export async function findMoveHindrance(pool: Pool, accountId: string): Promise<string | null> {
  if (!(await hasSpaces(pool, accountId))) return null;
  return `Account ${accountId} has spaces, and stored documents cannot be moved to another cell yet.`;
}
