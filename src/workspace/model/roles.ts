/** What a user is in a space. Owners are ADMIN. */
export const SPACE_ROLES = ["ADMIN", "EDITOR", "VIEWER"] as const;

export type SpaceRole = (typeof SPACE_ROLES)[number];

/** What one can be allowed to do in a space. */
export type SpacePermission =
  | "read"
  | "download"
  | "upload"
  | "delete"
  | "rename"
  | "edit_pages"
  | "manage_members"
  | "edit_workflows"
  | "run_workflows"
  | "publish_workflows"
  | "archive_workflows";

const forWorkflows = ["edit_workflows", "run_workflows", "publish_workflows", "archive_workflows"] as const;

const permissions: Readonly<Record<SpaceRole, readonly SpacePermission[]>> = {
  ADMIN: ["read", "download", "upload", "delete", "rename", "edit_pages", "manage_members", ...forWorkflows],
  EDITOR: ["read", "download", "upload", "rename", "edit_pages", ...forWorkflows],
  VIEWER: ["read", "download"],
};

/** Whether members of that role may do it. */
export function allows(role: SpaceRole, permission: SpacePermission): boolean {
  return permissions[role].includes(permission);
}
