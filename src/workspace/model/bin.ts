import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { NamedUser } from "./spaces.ts";

/** What can be deleted, and restored. */
export const BIN_KINDS = ["space", "folder", "document", "page", "workflow"] as const;
export type BinKind = (typeof BIN_KINDS)[number];

/** How long it can be. */
export const BIN_DAYS = 30;

/** Folders and documents, or links, that one transaction takes to the bin within a second. */
export const DELETED_AT_ONCE_MAX = 5_000;

export const BinItem = z
  .object({
    kind: z.enum(BIN_KINDS),
    id: id.describe("Of what was deleted, as it was before."),
    space_id: id,
    name: z.string(),
    deleted_by: NamedUser,
    deleted_at: time,
    gone_at: time.describe("When it is deleted for good. Until then it can be restored."),
  })
  .meta({ id: "BinItem", description: "What was deleted, with all that is in it." });
export type BinItem = z.output<typeof BinItem>;
