import type { AuditEntry } from "../accounts/accounts-schema.ts";
import { isUuid } from "../base/model/formats.ts";
import { type Html, html, type Part } from "./html.ts";
import { counted } from "./parts.ts";
import { momentOf } from "./times.ts";

/** What a sentence is made of. */
type Told = {
  readonly details: AuditEntry["details"];
  /** Below which the account's pages are; null: it is about none. */
  readonly base: string | null;
  readonly may: (scope: string) => boolean;
  readonly timeZone: string | null;
};

type Tell = (told: Told) => Part;

/** What follows the name of whoever did it, by operations' keys. A test goes through all that are audited. */
export const SENTENCES: Readonly<Record<string, Tell>> = {
  "webhooks.deliveries.replay": (told) => html`replayed ${delivery(told)}`,
  "webhooks.replays.create": (told) => {
    const { replay_id: id, rate_per_second: rate } = told.details;
    return html`replayed ${linkTo(told, "webhooks:replay", `/replays/${id}`, matchedText(told))}${filterText(told)}${
      typeof rate === "number" && ` at ${rate} a second`
    }`;
  },
  "webhooks.replays.cancel": (told) => html`stopped ${about(told, "bulk replay", "replay_id", REPLAYS)}`,
  "analyses.erase": (told) => html`erased ${about(told, "analysis", "analysis_id", ANALYSES)}`,
  "webhooks.endpoint.set": (told) => {
    const { url, previous_url: before, payload, forget_after_success: forgets } = told.details;
    const { signature_schemes: schemes, headers } = told.details;
    const options = [
      payload === "reference" && "webhooks carry a reference",
      payload === "full" && "webhooks carry the whole analysis",
      forgets === true && "analyses are erased after their delivery",
      forgets === false && "analyses are kept after their delivery",
      Array.isArray(schemes) && `signed as ${schemes.join(" and ")}`,
      Array.isArray(headers) && `headers of their own: ${headers.join(", ") || "none"}`,
    ].filter((option) => option !== false);
    const became =
      before === undefined
        ? html`set ${endpoint(told)} to ${code(url)}`
        : before === url
          ? html`saved ${endpoint(told)} ${code(url)} again`
          : html`changed ${endpoint(told)}: ${code(before)} → ${code(url)}`;
    return html`${became}${options.length > 0 && `: ${options.join(", ")}`}`;
  },
  "webhooks.endpoint.remove": (told) => html`removed ${endpoint(told)}`,
  "webhooks.endpoint.pause": (told) => html`paused ${endpoint(told)}`,
  "webhooks.endpoint.resume": (told) => html`resumed ${endpoint(told)}`,
  "webhooks.endpoint.test": (told) => html`sent a test event: ${delivery(told)}`,
  "webhooks.endpoint.check": (told) => html`checked the receiver at ${code(told.details.url)}`,
  "webhooks.events.consumers.remove": ({ details }) =>
    html`removed the consumer ${code(details.name)} of events`,
  "webhooks.refusals.lift": ({ details }) =>
    html`allowed deliveries to ${code(details.url)}, which had refused them`,
  "webhooks.signing_secret.rotate": ({ details }) => {
    const seconds = details.previous_signature === "omit" ? 0 : Number(details.overlap_seconds);
    const old = seconds > 0 ? `signs for ${lengthOf(seconds)} more` : "signs no more";
    return `rotated the signing secret; the old one ${old}`;
  },
  "webhooks.notices.recipients.add": ({ details }) =>
    `added ${text(details.address)} to those who get notices by email`,
  "webhooks.notices.recipients.remove": (told) =>
    html`removed ${about(told, "recipient of notices", "recipient_id")}`,
  "console.links.create": ({ details: { viewer, permissions, embed_origin: origin } }) => {
    const label = viewer instanceof Object && "label" in viewer && ` for ${viewer.label}`;
    return html`opened the console${label}${granted(permissions)}${
      typeof origin === "string" && html`, framed by ${code(origin)}`
    }`;
  },
  "console.sessions.revoke": (told) => {
    const { session_id: id, viewer_id: viewer } = told.details;
    if (id !== undefined) return html`ended ${about(told, "console session", "session_id")}`;
    return viewer === undefined ? "ended all console sessions" : `ended the console sessions of ${viewer}`;
  },
  "console.staff.sign_in": () => "signed in to support",
  "api_keys.create": (told) => {
    const { key_id: id, name, scopes, expires_at: end } = told.details;
    const key = typeof name === "string" ? html`“${name}”` : html`<code>${shortId(id)}</code>`;
    return html`made the API key ${linkTo(told, "keys:write", `/keys#k-${id}`, key)}${granted(scopes)}${
      typeof end === "string" && html`, until ${momentOf(end, told.timeZone)}`
    }`;
  },
  "api_keys.revoke": (told) => html`revoked ${about(told, "API key", "key_id", KEYS)}`,
  "accounts.create": ({ details }) => html`made the account “${text(details.name)}”`,
  "accounts.move": ({ details: { from, to } }) =>
    to === undefined
      ? `moved the account here from the cell ${text(from)}`
      : `moved the account to the cell ${text(to)}`,
  "accounts.quota": ({ details }) => {
    const set = Object.entries(details).map(
      ([quota, most]) => `${quota} ${most === null ? "without limit" : most}`,
    );
    return html`set the account's quotas${set.length > 0 && `: ${set.join(", ")}`}`;
  },
  "accounts.erase": () => "erased the account",
  "users.create": ({ details }) => html`added the user ${code(details.idp_user_id)}`,
  "users.disable": (told) => html`disabled ${about(told, "user", "user_id", USERS)}`,
  "secrets.reseal": ({ details }) => `encrypted ${countOf(details.resealed, "secret")} with another key`,
  ...ofSpaces(),
};

/** Those of an area that may not be there. */
function ofSpaces(): Readonly<Record<string, Tell>> {
  const inSpace = (told: Told) =>
    told.details.space_id !== undefined && html` in ${about(told, "space", "space_id")}`;
  const named = (verb: string, noun: string, member = "name"): Tell => {
    return (told) => html`${verb} ${noun} “${text(told.details[member])}”${inSpace(told)}`;
  };
  const link = (told: Told) => html`${about(told, "link", "link_id")} to ${about(told, "page", "page_id")}`;
  const workflow = (told: Told) => about(told, "workflow", "workflow_id");
  const placed = (verb: string, noun: string): Tell => {
    return (told) =>
      html`${verb} the ${noun} “${text(told.details.name)}”${noun !== "space" && inSpace(told)}`;
  };
  const deleted = (noun: string): Tell => {
    return (told) =>
      html`${placed("deleted", noun)(told)}${told.details.permanently === true && " for good"}`;
  };
  const restored = (noun: string) => placed("restored", noun);
  return {
    "spaces.delete": deleted("space"),
    "spaces.restore": restored("space"),
    "folders.delete": deleted("folder"),
    "folders.restore": restored("folder"),
    "documents.delete": deleted("document"),
    "documents.restore": restored("document"),
    "pages.delete": deleted("page"),
    "pages.restore": restored("page"),
    "workflows.delete": deleted("workflow"),
    "workflows.restore": restored("workflow"),
    "spaces.create": ({ details }) => `made the space “${text(details.name)}”`,
    "spaces.update": (told) =>
      html`renamed ${about(told, "space", "space_id")} to “${text(told.details.name)}”`,
    "spaces.members.set": (told) =>
      html`made ${about(told, "user", "user_id")} ${text(told.details.role)}${inSpace(told)}`,
    "spaces.members.remove": (told) =>
      html`removed ${about(told, "user", "user_id")} from ${about(told, "space", "space_id")}`,
    "folders.create": named("made", "the folder"),
    "documents.create": named("added", "the document", "file_name"),
    "documents.update": (told) =>
      html`renamed ${about(told, "document", "document_id")} to “${text(told.details.file_name)}”`,
    "documents.upload": (told) =>
      html`uploaded ${countOf(told.details.bytes, "byte")} to ${about(told, "document", "document_id")}`,
    "pages.create": named("made", "the page", "title"),
    "pages.save": named("saved", "the page", "title"),
    "pages.publish": (told) =>
      html`published ${about(told, "page", "page_id")} as version ${text(told.details.number)}`,
    "pages.links_create": (told) =>
      html`made the link “${text(told.details.label)}” to ${about(told, "page", "page_id")}`,
    "pages.links_update": (told) =>
      html`${told.details.status === "REVOKED" ? "revoked" : "changed"} ${link(told)}`,
    "pages.links_retarget": (told) => html`pointed ${link(told)} at another version`,
    "workflows.create": (told) => html`made ${workflow(told)}${inSpace(told)}`,
    "workflows.update": (told) => {
      const { name, summary, enabled } = told.details;
      const place = enabled === undefined ? null : enabled === true ? "on" : "off";
      if (name === undefined && summary === undefined && place)
        return html`switched ${workflow(told)} ${place}`;
      return html`${name === undefined ? "described" : "renamed"} ${workflow(told)}${
        name !== undefined && html` to “${text(name)}”`
      }${place && `, and switched it ${place}`}`;
    },
    "workflows.draft.save": (told) => html`saved the draft of ${workflow(told)}`,
    "workflows.publish": (told) => {
      const { version, change_note: note } = told.details;
      return html`published ${workflow(told)} as version ${text(version)}${note ? `: ${note}` : ""}`;
    },
    "workflows.versions.restore": (told) =>
      html`made version ${text(told.details.version)} the draft of ${workflow(told)}`,
    "workflows.archive": (told) => html`archived ${workflow(told)}`,
    "workflows.unarchive": (told) => html`took ${workflow(told)} out of the archive`,
    "workflows.runs.create": (told) => {
      const { version, test_node_id: node } = told.details;
      const ran = node === undefined ? "ran" : html`tested the node ${code(node)} of`;
      return html`${ran} ${workflow(told)}, version ${text(version)}`;
    },
    "workflows.runs.retry": (told) => html`retried ${about(told, "run", "retry_of")} of ${workflow(told)}`,
    "workflows.hook.create": (told) =>
      html`${told.details.previous_ends_at === null ? "made a" : "rotated the"} hook of ${workflow(told)}`,
    "workflows.hook.delete": (told) => html`ended the hook of ${workflow(told)}`,
    "workflows.runs.cancel": (told) => html`stopped ${about(told, "run", "run_id")} of ${workflow(told)}`,
  };
}

/** A place of the console for a thing's id, and the scope that it takes. */
type Place = readonly [scope: string, path: string];
const DELIVERIES: Place = ["webhooks:read", "/deliveries/"];
const ANALYSES: Place = ["webhooks:read", "/deliveries?analysis_id="];
const REPLAYS: Place = ["webhooks:replay", "/replays/"];
const KEYS: Place = ["keys:write", "/keys#k-"];
const USERS: Place = ["users:write", "/keys/users#u-"];

/** By its noun and the end of its id, for whoever looks for it. */
function about(told: Told, noun: string, member: string, place: Place | null = null): Part {
  const id = told.details[member];
  if (typeof id !== "string") return `${/^[aeiou]/i.test(noun) ? "an" : "a"} ${noun}`;
  const named = html`${noun} <code title="${id}">${shortId(id)}</code>`;
  return place === null ? named : linkTo(told, place[0], place[1] + encodeURIComponent(id), named);
}

function linkTo({ base, may }: Told, scope: string, path: string, name: Part): Part {
  return base !== null && may(scope) ? html`<a href="${base}${path}">${name}</a>` : name;
}

function delivery(told: Told): Part {
  return about(told, "delivery", "delivery_id", DELIVERIES);
}

function endpoint(told: Told): Part {
  return linkTo(told, "webhooks:read", "/endpoint", "the endpoint");
}

/** The first digits of ids that were made in one minute are the same. Others are of people's own making. */
export function shortId(id: unknown): string {
  const whole = text(id);
  return isUuid(whole) ? whole.slice(-8) : whole;
}

function countOf(count: unknown, one: string, many = `${one}s`): string {
  return typeof count === "number" ? counted(count, one, many) : many;
}

function code(value: unknown): Html {
  return html`<code>${text(value)}</code>`;
}

function text(value: unknown): string {
  return String(value ?? "?");
}

function granted(scopes: unknown): Part {
  return Array.isArray(scopes) && html` <span class="soft">(${scopes.join(", ")})</span>`;
}

/** Of what was chosen: `48 abandoned deliveries`. */
function matchedText({ details: { matched, filter } }: Told): string {
  const statuses = filter instanceof Object && "status" in filter ? [filter.status].flat() : [];
  const word = statuses.length !== 1 ? "" : statuses[0] === "failed" ? "failing " : `${statuses[0]} `;
  return countOf(matched, `${word}delivery`, `${word}deliveries`);
}

/** What else was asked of them. */
function filterText({ details: { filter }, timeZone }: Told): Part {
  const asked = Object.entries(filter ?? {}).filter(([name, value]) => name !== "status" && value !== null);
  if (asked.length === 0) return null;
  const parts = asked.map(([name, value], at) => {
    const isTime = name.startsWith("created_");
    const shown = isTime ? momentOf(String(value), timeZone) : [value].flat().join(" or ");
    return html`${at > 0 && ", "}${FILTER_WORDS[name] ?? readable(name)} ${shown}`;
  });
  return html` <span class="soft">(${parts})</span>`;
}

const FILTER_WORDS: Readonly<Record<string, string>> = {
  analysis_id: "analysis",
  target_host: "host",
  error_code: "last error",
  status_code: "code",
  status_code_min: "code from",
  status_code_max: "code to",
  replay_id: "replay",
  created_after: "published from",
  created_before: "published before",
};

/** What has no words of its own: `webhooks.draft_save` is “webhooks draft save”. */
export function readable(key: string): string {
  return key.replaceAll(/[._]/g, " ");
}

function lengthOf(seconds: number): string {
  const [count, unit] = seconds % 3_600 === 0 ? [seconds / 3_600, "hour"] : [seconds, "second"];
  return counted(count, unit);
}
