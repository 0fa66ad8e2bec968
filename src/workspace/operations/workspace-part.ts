import type { ApiPart } from "../../operations/api-part.ts";
import { folderOperations } from "./folders.ts";
import { memberOperations } from "./members.ts";
import { workspaceProblems } from "./problems.ts";
import { spaceOperations } from "./spaces.ts";
import type { WorkspaceDependencies } from "./workspace-operation.ts";

/** What the workspace adds to the API. */
export function workspacePart({ pool }: Pick<WorkspaceDependencies, "pool">): ApiPart {
  // No document can be uploaded yet, so there is nothing to move.
  const dependencies: WorkspaceDependencies = { pool, moveObjects: async () => undefined };
  return {
    about:
      "Keeps documents in spaces, whose members have roles. Use a key that acts for a user, create a space, and give " +
      "others a role in it.",
    operations: [
      ...spaceOperations(dependencies),
      ...memberOperations(dependencies),
      ...folderOperations(dependencies),
    ],
    problems: workspaceProblems,
    pages: [],
    sends: [],
    tags: [
      { name: "Spaces", description: "Rooms for documents, and who may do what in them." },
      { name: "Documents", description: "Files in spaces, and the folders that they lie in." },
    ],
  };
}
