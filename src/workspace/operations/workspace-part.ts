import type { ApiPart } from "../../api/operations.ts";
import { ANSWER_WITHIN_MS } from "../../http/limits.ts";
import { findRunOrigin, findWorkflowsOf } from "../store/origins.ts";
import { findSpaceIds, holdMemberships } from "../store/spaces.ts";
import { readQuotas, readWorkspaceStorage } from "../store/storage.ts";
import { createRendering } from "../visiting/rendering.ts";
import { createVisitingRoutes } from "../visiting/visiting-routes.ts";
import { createPasswordTurns, createVisiting, hashPassword, visit } from "../visiting/visits.ts";
import { binOperations } from "./bin.ts";
import { contentOperations } from "./document-content.ts";
import { documentOperations } from "./documents.ts";
import { pageLinkOperations } from "./page-links.ts";
import { pageOperations } from "./pages.ts";
import { workspaceProblems } from "./problems.ts";
import { runListOperations } from "./run-lists.ts";
import { findPublishedRun, runOperations } from "./runs.ts";
import { spaceOperations } from "./spaces.ts";
import { createHookRoutes, hookOperations } from "./triggers.ts";
import { workflowOperations } from "./workflows.ts";
import type { WorkspaceDependencies } from "./workspace-operation.ts";

/** What the workspace adds to the API. It closes the object store. */
export function workspacePart(dependencies: WorkspaceDependencies): ApiPart {
  const { pool, objects, pagesUrl } = dependencies;
  const rendering = createRendering(pool);
  const inTurn = createPasswordTurns();
  const visiting = createVisiting(pool, rendering, inTurn);
  const addVisitingRoutes = createVisitingRoutes({
    pagesUrl,
    visit: (visitor, inDatabaseTurn) => visit(visiting, visitor, inDatabaseTurn),
  });
  const forPages = {
    ...dependencies,
    rendering,
    hashPassword: (sharer: string, password: string, gone: AbortSignal) =>
      inTurn(sharer, { waitMs: ANSWER_WITHIN_MS, gone }, () => hashPassword(password)),
  };
  return {
    about:
      "Keeps documents in spaces, whose members have roles. Use a key that acts for a user, create a space, give " +
      "others a role in it, create and upload documents, create workflows that work on them, and run those. " +
      "Write pages there, and show them to anyone by a link.",
    operations: [
      ...spaceOperations(dependencies),
      ...documentOperations(dependencies),
      ...contentOperations(dependencies),
      ...pageOperations(forPages),
      ...pageLinkOperations(forPages),
      ...workflowOperations(dependencies),
      ...runListOperations(dependencies),
      ...hookOperations(dependencies),
      ...runOperations(dependencies),
      ...binOperations(dependencies),
    ],
    problems: workspaceProblems,
    pages: [],
    findSpaces: async (accountId, userId, tx) => {
      if (tx !== null) await holdMemberships(tx, { accountId, userId });
      return (await findSpaceIds(tx ?? pool, { accountId, userId }))!.ids;
    },
    origins: {
      findOrigin: (accountId, published) => findRunOrigin(pool, accountId, published),
      findRun: (accountId, runId) => findPublishedRun(pool, accountId, runId),
      findWorkflows: (reader, published) => findWorkflowsOf(pool, reader, published),
    },
    readStorage: (accountId) => readWorkspaceStorage(pool, accountId),
    readQuotas: (accountId) => readQuotas(pool, accountId),
    addRoutes: async (app, kernel) => {
      await addVisitingRoutes(app, kernel);
      await createHookRoutes(dependencies)(app, kernel);
    },
    close: () => objects.close(),
    sends: [],
    tags: [
      { name: "Spaces", description: "Places for documents, and who may do what in them." },
      { name: "Documents", description: "Files in spaces, and the folders that they are in." },
      { name: "Pages", description: "Texts in spaces, and the links by which anyone can read them." },
      { name: "Workflows", description: "Work on documents: a draft, and published versions of it." },
      { name: "Workflow runs", description: "Runs of workflows: what they do, and their results." },
    ],
  };
}
