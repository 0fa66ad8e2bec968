import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { Person } from "./spaces.ts";

/** `REVOKED` for good. */
export const LINK_STATUSES = ["ACTIVE", "REVOKED"] as const;

/** What becomes of a visitor: only an active link opens. */
const LINK_STATES = ["active", "expired", "exhausted", "revoked"] as const;
type LinkState = (typeof LINK_STATES)[number];

const ACCESS_MODES = ["ANONYMOUS", "PASSWORD"] as const;

export type LinkLimits = Pick<PageLink, "status" | "max_visits" | "visit_count"> & {
  /** Whether its time is over. */
  readonly isExpired: boolean;
};

export function linkState({ status, isExpired, max_visits, visit_count }: LinkLimits): LinkState {
  if (status === "REVOKED") return "revoked";
  if (isExpired) return "expired";
  return max_visits !== null && visit_count >= max_visits ? "exhausted" : "active";
}

/** Of a page's Markdown, in UTF-8: a long book's chapter, and rendered within seconds whatever it is. */
export const MARKDOWN_BYTES_MAX = 262_144;

/** What PostgreSQL takes, and not too long. */
export function isMarkdown(text: string): boolean {
  return text.isWellFormed() && !text.includes("\0") && Buffer.byteLength(text) <= MARKDOWN_BYTES_MAX;
}

export const Page = z
  .object({
    id,
    space_id: id,
    title: z.string(),
    revision: z.int().min(1).describe("The draft's: it changes with each save."),
    current_version: z
      .object({ id, number: z.int().min(1), published_at: time })
      .nullable()
      .describe("The newest version; null: nothing has been published."),
    draft_differs: z
      .boolean()
      .describe("Whether the draft differs from that version, so that it can be published."),
    created_by: Person,
    created_at: time,
    updated_at: time.describe("When it was last saved."),
  })
  .meta({ id: "Page", description: "A text that links can show to anyone." });
export type Page = z.output<typeof Page>;

export const PageWithText = Page.extend({ markdown: z.string().describe("The draft.") }).meta({
  id: "PageWithText",
  description: "A page with its draft.",
});
export type PageWithText = z.output<typeof PageWithText>;

export const PageVersion = z
  .object({
    id,
    page_id: id,
    number: z.int().min(1),
    title: z.string(),
    revision: z.int().min(1).describe("The page's revision when it was published."),
    published_by: Person,
    published_at: time,
  })
  .meta({ id: "PageVersion", description: "A published version of a page; it never changes." });
export type PageVersion = z.output<typeof PageVersion>;

export const PageVersionWithText = PageVersion.extend({
  markdown: z.string().describe("What its links show."),
}).meta({ id: "PageVersionWithText", description: "A version of a page with its text." });
export type PageVersionWithText = z.output<typeof PageVersionWithText>;

const anything = z.record(z.string(), z.unknown());

export const PageLink = z
  .object({
    id,
    page_id: id,
    page_version_id: id.describe("The version that it shows."),
    page_version_number: z.int().min(1),
    pinned: z.boolean().describe("False: it shows the page's newest version, whichever that is."),
    label: z.string(),
    status: z.enum(LINK_STATUSES).describe("`REVOKED` is final."),
    state: z.enum(LINK_STATES).describe("Only `active` links open."),
    auth_version: z.int().min(1).describe("Changes whenever the password does."),
    expires_at: time.nullable(),
    max_visits: z.int().min(1).nullable(),
    visit_count: z.int().min(0),
    has_password: z.boolean(),
    access_mode: z.enum(ACCESS_MODES).describe("`PASSWORD`: visitors are asked for it."),
    allowed_emails: z.array(z.string()).describe("Empty: visitors are not asked who they are."),
    allowed_domains: z.array(z.string()).describe("Empty, like `allowed_emails`."),
    submission_mode: z.enum(["NONE"]),
    submission_count: z.int().min(0).describe("0: visitors cannot send anything."),
    last_visited_at: time.nullable(),
    locale: z.string().nullable(),
    permissions: anything,
    context: anything,
    source_type: z.enum(["USER"]),
    source_id: z.string().nullable(),
    source_metadata: anything,
    created_by: Person,
    created_at: time,
    updated_at: time,
  })
  .meta({ id: "PageLink", description: "A link by which anyone can open a page." });
export type PageLink = z.output<typeof PageLink>;

/** What every link says of what is not offered yet. */
export const LINK_CONSTANTS = {
  allowed_emails: [],
  allowed_domains: [],
  submission_mode: "NONE",
  submission_count: 0,
  locale: null,
  permissions: {},
  context: {},
  source_type: "USER",
  source_id: null,
  source_metadata: {},
} satisfies Partial<PageLink>;
