import { z } from "zod";
import { displayName, INTEGER_MAX, id, lineOfText, moment, time } from "../../api/fields.ts";
import {
  ACCESS_MODES,
  isMarkdown,
  LINK_STATES,
  LINK_STATUSES,
  linkState,
  MARKDOWN_BYTES_MAX,
} from "../model/pages.ts";
import type { StoredLink } from "../store/page-links.ts";
import type { StoredPage, StoredVersion } from "../store/pages.ts";
import { PASSWORD_CHARS_MAX } from "../visiting/visits.ts";
import { Person, personBody } from "./workspace-operation.ts";

const page = z.object({
  id,
  space_id: id,
  title: z.string(),
  revision: z.int().min(1).describe("Of what is being written: another one with each save."),
  current_version: z
    .object({ id, number: z.int().min(1), published_at: time })
    .nullable()
    .describe("The newest version; null: nothing has been published."),
  draft_differs: z
    .boolean()
    .describe(
      "Whether what is being written is another text than that version's, so that it can be published.",
    ),
  created_by: Person,
  created_at: time,
  updated_at: time.describe("When it was last saved."),
});

export const Page = page.meta({ id: "Page", description: "A text that links can show to anybody." });

export const PageWithText = page
  .extend({ markdown: z.string().describe("What is being written.") })
  .meta({ id: "PageWithText", description: "A page with what is being written." });

const version = z.object({
  id,
  page_id: id,
  number: z.int().min(1),
  title: z.string(),
  revision: z.int().min(1).describe("The page's, when it was published."),
  published_by: Person,
  published_at: time,
});

export const PageVersion = version.meta({
  id: "PageVersion",
  description: "What was published of a page; it never changes.",
});

export const PageVersionWithText = version
  .extend({ markdown: z.string().describe("What its links show.") })
  .meta({ id: "PageVersionWithText", description: "A version of a page with its text." });

const anything = z.record(z.string(), z.unknown());

export const PageLink = z
  .object({
    id,
    page_id: id,
    page_version_id: id.describe("The version that it shows."),
    page_version_number: z.int().min(1),
    pinned: z.boolean().describe("False: it shows the page's newest version, whichever that is."),
    label: z.string(),
    status: z.enum(LINK_STATUSES).describe("`REVOKED` for good."),
    state: z.enum(LINK_STATES).describe("Only `active` links open."),
    auth_version: z.int().min(1).describe("Another one whenever the password changes."),
    expires_at: time.nullable(),
    max_visits: z.int().min(1).nullable(),
    visit_count: z.int().min(0),
    has_password: z.boolean(),
    access_mode: z.enum(ACCESS_MODES).describe("`PASSWORD`: visitors are asked for it."),
    allowed_emails: z.array(z.string()).describe("Empty: visitors are not asked who they are."),
    allowed_domains: z.array(z.string()).describe("Empty, too."),
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
  .meta({ id: "PageLink", description: "A link by which anybody can open a page." });

export const NewPageLink = PageLink.extend({
  url: z.url().describe("The link itself. Keep it: it is not told again."),
}).meta({ id: "NewPageLink", description: "A link that was just made." });

const markdown = z
  .string()
  .refine(isMarkdown, {
    error: `Must have at most ${MARKDOWN_BYTES_MAX} bytes of UTF-8, without NUL and lone surrogates.`,
  })
  .meta({ maxLength: MARKDOWN_BYTES_MAX })
  .describe(
    "CommonMark with tables and strikethrough. HTML in it is shown as text, and images as their description.",
  );

const draft = { title: displayName.describe("Its heading, and its name in lists."), markdown };

/** JSON writes a character of two bytes in six. */
export const DRAFT_BODY_BYTES_MAX = 4 * MARKDOWN_BYTES_MAX;

export const NewPage = z.strictObject({ space_id: id, ...draft });

const revision = z.int().min(1).max(INTEGER_MAX);

export const SavedDraft = z.strictObject({
  revision: revision.describe("The one that it is based on: 409 if another was saved since."),
  ...draft,
});

export const Publication = z.strictObject({
  revision: revision
    .optional()
    .describe("What to publish: 409 if another was saved since. Absent: whatever is there."),
});

const NOT_ENFORCED =
  "Must be empty: visitors are not asked who they are, so this could not be enforced. Use a password.";
const nobody = z
  .array(z.string())
  .refine(({ length }) => length === 0, { error: NOT_ENFORCED })
  .meta({ maxItems: 0 })
  .describe(NOT_ENFORCED);

const settings = {
  label: displayName.describe("For people."),
  expires_at: moment
    .refine(isInOurYears, { error: "Must be in the years 1 to 9999, in UTC." })
    .nullable()
    .describe("When it expires; null: never. For a new link it must be in the future."),
  max_visits: z
    .int()
    .min(1)
    .max(INTEGER_MAX)
    .nullable()
    .describe("How often it opens, also for programs that preview links; null: no limit."),
  // Nobody could type a control character.
  password: lineOfText
    .min(8)
    .max(PASSWORD_CHARS_MAX)
    .nullable()
    .describe("Visitors are asked for it; null: they are not."),
  allowed_emails: nobody,
  allowed_domains: nobody,
};

export const LinkSettings = z.strictObject(settings).partial().required({ label: true });

export const LinkChanges = z
  .strictObject({
    ...settings,
    pinned: z.literal(false).describe("It follows new versions again. To pin it, retarget it."),
    status: z.literal("REVOKED").describe("It never opens again."),
  })
  .partial();

/** Those that PostgreSQL and our answers write in four digits. What is no moment at all is told so alone. */
function isInOurYears(text: string): boolean {
  const year = new Date(text).getUTCFullYear();
  return !(year < 1 || year > 9_999);
}

export const Retargeting = z.strictObject({ page_version_id: id });

export function pageBody(stored: StoredPage): z.output<typeof Page> {
  const { currentVersion: current } = stored;
  return {
    id: stored.id,
    space_id: stored.spaceId,
    title: stored.title,
    revision: stored.revision,
    current_version: current && {
      id: current.id,
      number: current.number,
      published_at: new Date(current.publishedAtMs).toISOString(),
    },
    draft_differs: stored.draftDiffers,
    created_by: personBody(stored.createdBy),
    created_at: stored.createdAt.toISOString(),
    updated_at: stored.updatedAt.toISOString(),
  };
}

export function versionBody(stored: StoredVersion): z.output<typeof PageVersion> {
  return {
    id: stored.id,
    page_id: stored.pageId,
    number: stored.number,
    title: stored.title,
    revision: stored.revision,
    published_by: personBody(stored.publishedBy),
    published_at: stored.publishedAt.toISOString(),
  };
}

export function linkBody(stored: StoredLink): z.output<typeof PageLink> {
  return {
    id: stored.id,
    page_id: stored.pageId,
    page_version_id: stored.versionId,
    page_version_number: stored.versionNumber,
    pinned: stored.isPinned,
    label: stored.label,
    status: stored.status,
    state: linkState(stored),
    auth_version: stored.authVersion,
    expires_at: stored.expiresAt?.toISOString() ?? null,
    max_visits: stored.maxVisits,
    visit_count: stored.visitCount,
    has_password: stored.hasPassword,
    access_mode: stored.hasPassword ? "PASSWORD" : "ANONYMOUS",
    allowed_emails: [],
    allowed_domains: [],
    submission_mode: "NONE",
    submission_count: 0,
    last_visited_at: stored.lastVisitedAt?.toISOString() ?? null,
    locale: null,
    permissions: {},
    context: {},
    source_type: "USER",
    source_id: null,
    source_metadata: {},
    created_by: personBody(stored.createdBy),
    created_at: stored.createdAt.toISOString(),
    updated_at: stored.updatedAt.toISOString(),
  };
}
