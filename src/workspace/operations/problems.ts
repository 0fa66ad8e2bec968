import type { ProblemCatalogue } from "../../api/problems.ts";

/** The codes that the workspace adds. */
export const workspaceProblems = {
  space_owner_fixed: {
    status: 409,
    title: "Space owner fixed",
    meaning: "The member is the space's owner, who stays a member and an ADMIN.",
    remedy: "Change the role of other members, or remove those; a space always has its owner.",
  },
  folder_name_taken: {
    status: 409,
    title: "Folder name taken",
    meaning: "There is a folder of this name in the same place already.",
    remedy: "Use that folder (list the folders to get its id), or choose another name.",
  },
} as const satisfies ProblemCatalogue;

export type WorkspaceCode = keyof typeof workspaceProblems;
