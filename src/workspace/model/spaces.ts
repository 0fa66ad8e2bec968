import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { SPACE_ROLES } from "./roles.ts";

export const User = z
  .object({ id, email: z.string(), name: z.string(), image_url: z.string().nullable() })
  .meta({ id: "User", description: "A person of the account." });

/** As pages name who made them. */
export const Person = z.object({ id, name: z.string(), email: z.string() });

/** As documents and folders do. */
export const NamedUser = z.object({ id, name: z.string() });

export const Space = z
  .object({
    id,
    idp_user_id: z.string().describe("The owner, as the account's identity provider knows them."),
    name: z.string(),
    storage_prefix: z.string().describe("Where the space's objects are kept."),
    created_at: time,
    role: z.enum(SPACE_ROLES).describe("Your role in this space; the following say what it allows."),
    is_owner: z.boolean().describe("Whether you own it; owners are ADMIN."),
    can_read: z.boolean(),
    can_download: z.boolean(),
    can_upload: z.boolean(),
    can_delete: z.boolean(),
    can_rename: z.boolean(),
    document_count: z.int().min(0),
    member_count: z.int().min(1),
    skill_count: z.int().min(0).describe("0: skills are not offered."),
  })
  .meta({ id: "Space", description: "A place for documents, as you see it." });
export type Space = z.output<typeof Space>;

export const role = z
  .enum(SPACE_ROLES)
  .describe(
    "`ADMIN`: everything, members included. `EDITOR`: read, download, upload, rename; edit, publish, run and " +
      "archive workflows. `VIEWER`: read, download.",
  );

export const Member = z
  .object({ user: User, role, is_owner: z.boolean(), created_at: time.describe("Member since.") })
  .meta({ id: "SpaceMember", description: "A member of a space." });
export type Member = z.output<typeof Member>;
