import type { ApiPart } from "../../operations/api-part.ts";
import { contentOperations } from "./document-content.ts";
import { documentOperations } from "./documents.ts";
import { folderOperations } from "./folders.ts";
import { memberOperations } from "./members.ts";
import { workspaceProblems } from "./problems.ts";
import { runReadOperations } from "./run-reads.ts";
import { runOperations } from "./runs.ts";
import { spaceOperations } from "./spaces.ts";
import { workflowDraftOperations } from "./workflow-drafts.ts";
import { workflowOperations } from "./workflows.ts";
import type { WorkspaceDependencies } from "./workspace-operation.ts";

/** What the workspace adds to the API. It closes the object store. */
export function workspacePart(dependencies: WorkspaceDependencies): ApiPart {
  return {
    about:
      "Keeps documents in spaces, whose members have roles. Use a key that acts for a user, create a space, give " +
      "others a role in it, create and upload documents, make workflows that work on them, and run those.",
    operations: [
      ...spaceOperations(dependencies),
      ...memberOperations(dependencies),
      ...folderOperations(dependencies),
      ...documentOperations(dependencies),
      ...contentOperations(dependencies),
      ...workflowOperations(dependencies),
      ...workflowDraftOperations(),
      ...runOperations(dependencies),
      ...runReadOperations(dependencies),
    ],
    problems: workspaceProblems,
    pages: [],
    close: () => dependencies.objects.close(),
    sends: [],
    tags: [
      { name: "Spaces", description: "Rooms for documents, and who may do what in them." },
      { name: "Documents", description: "Files in spaces, and the folders that they lie in." },
      {
        name: "Workflows",
        description: "What is done with documents: a draft, and versions published of it.",
      },
      { name: "Workflow runs", description: "Workflows at work: what they do, and what comes of it." },
    ],
  };
}
