import {
  ATTEMPT_ERROR_CODES,
  CONNECT_ERRORS,
  RESPONSE_ERRORS,
  TLS_ERRORS,
} from "../base/model/error-codes.ts";
import { EXPLAINED_STATUSES, statusErrorCode } from "../base/model/http-status-errors.ts";
import { END_REASONS } from "../base/model/statuses.ts";
import { URL_REFUSALS } from "../base/model/url-refusals.ts";
import { NO_MARKS } from "./field-marks.ts";
import { type Html, html, type Part } from "./html.ts";
import { hidden, options } from "./parts.ts";
import type { Fields } from "./screen.ts";
import { momentAt, wallTimeOf } from "./times.ts";

/** Filters that the fields below set, by their names in the API. */
const FIELD_FILTERS = [
  "analysis_id",
  "target_host",
  "error_code",
  "reason",
  "status_code",
  "status_code_min",
  "status_code_max",
  "created_after",
  "created_before",
] as const;

/** Filters that no field sets, but an address may. */
const KEPT = ["event", "replay_id", "workflow_id"] as const;

/** In an address's fields, none of them; the status and the chart's range are no fields of a form. */
export const NO_FILTERS: Fields = Object.fromEntries(
  ["q", ...FIELD_FILTERS, ...KEPT].map((name) => [name, []]),
);

/** What people call them. */
export const FILTER_NAMES: Readonly<Record<string, string>> = {
  q: "search",
  status: "status",
  reason: "reason",
  event: "event",
  analysis_id: "analysis",
  target_host: "host",
  error_code: "error",
  status_code: "code",
  status_code_min: "code from",
  status_code_max: "code to",
  replay_id: "of replay",
  workflow_id: "workflow",
  created_after: "from",
  created_before: "to",
};

/**
 * What a form's fields ask for, as the API has it: blank ones ask for nothing, `code` is a status or a range of them,
 * `from` and `to` are times of the viewer's zone. What cannot be read is left for the API to refuse. An address has the
 * API's form, so that a copy of it shows the same in any zone.
 */
export function filtersOf(fields: Fields, timeZone: string | null): Fields {
  const filters: Record<string, string | readonly string[]> = {};
  for (const [name, given] of Object.entries(fields)) {
    const values = name === "reason" ? [given].flat().flatMap((value) => value.split(",")) : [given].flat();
    const [first = "", ...more] = values.flatMap((value) => value.trim() || []);
    if (first === "") continue;
    if (name === "code") Object.assign(filters, codesOf(first));
    else if (name === "from") filters.created_after = momentAt(first, timeZone, "first") ?? first;
    else if (name === "to") filters.created_before = momentAt(first, timeZone, "last") ?? first;
    else filters[name] = more.length === 0 ? first : [first, ...more];
  }
  return filters;
}

/** `503`, `5xx`, `500-599`, `500-`, `-499`. */
function codesOf(text: string): Readonly<Record<string, string>> {
  const hundreds = /^([1-9])xx$/i.exec(text)?.[1];
  if (hundreds !== undefined) return { status_code_min: `${hundreds}00`, status_code_max: `${hundreds}99` };
  const range = /^(\d{3})?\s*[-–]\s*(\d{3})?$/.exec(text);
  if (range === null) return { status_code: text };
  const [, min, max] = range;
  return {
    ...(min !== undefined && { status_code_min: min }),
    ...(max !== undefined && { status_code_max: max }),
  };
}

function codeText(filters: Fields): string {
  const { status_code: code, status_code_min: min = "", status_code_max: max = "" } = filters;
  if (code !== undefined) return String(code);
  if (/^\d00$/.test(String(min)) && max === `${String(min)[0]}99`) return `${String(min)[0]}xx`;
  return min === "" && max === "" ? "" : `${min}-${max}`;
}

/** An address's query, with its question mark; empty without parameters. */
export function searchOf(fields: Fields): string {
  const query = new URLSearchParams();
  for (const [name, given] of Object.entries(fields)) {
    for (const value of [given].flat()) query.append(name, value);
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}

export function valuesOf(fields: Fields, name: string): readonly string[] {
  return [fields[name] ?? []].flat();
}

/** Fields for all of them but the status, and perhaps the reason, of a form that comes back through `filtersOf`. */
export function filterFields(
  filters: Fields,
  timeZone: string | null,
  hasReason: boolean,
  marks = NO_MARKS,
): Html {
  const text = (name: string) => valuesOf(filters, name).join();
  const reason = text("reason");
  const reasons = [...new Set(["", ...END_REASONS, reason])];
  const { field } = marks;
  const reasonField = (marked: Part) =>
    html`<label>Reason <select name="reason"${marked}>${options(reasons, reason, ANY)}</select></label>`;
  return html`${KEPT.flatMap((name) => valuesOf(filters, name).map((value) => hidden(name, value)))}
${field(
  ["analysis_id"],
  (marked) => html`<label>Analysis <input name="analysis_id" value="${text("analysis_id")}" maxlength="200"
  autocomplete="off"${marked}></label>`,
)}
${field(
  ["target_host"],
  (marked) => html`<label>Host <input name="target_host" value="${text("target_host")}" maxlength="255"
  autocomplete="off"${marked}></label>`,
)}
${field(["error_code"], (marked) => html`<label>Last error ${errorSelect(text("error_code"), marked)}</label>`)}
${hasReason && field(["reason"], reasonField)}
${field(
  CODES,
  (marked) => html`<label>Code or range <input name="code" value="${codeText(filters)}" size="7" maxlength="9"
  placeholder="503, 5xx" autocomplete="off"${marked}></label>`,
)}
${timeFields(filters, timeZone, marks)}`;
}

const CODES = ["status_code", "status_code_min", "status_code_max"];

/** Between which times, by the viewer's clock. What is no time is shown as it was asked for. */
export function timeFields(filters: Fields, timeZone: string | null, marks = NO_MARKS): Html {
  const field = (name: string, word: string, filter: string) => {
    const asked = valuesOf(filters, filter).join();
    const time = wallTimeOf(asked, timeZone);
    const type = time === "" && asked !== "" ? "text" : "datetime-local";
    return marks.field(
      [filter],
      (
        marked,
      ) => html`<label class="moment">${word} <input type="${type}" name="${name}" value="${time || asked}"
  step="any"${marked}></label>`,
    );
  };
  return html`${field("from", "From", "created_after")}
${field("to", "To", "created_before")}`;
}

/**
 * The form of a list's filters, folded in narrow windows unless some are set.
 *
 * @param clearHref shows the list without them; null: none is set
 */
export function filterForm(path: string, kind: string, fields: Part, clearHref: string | null): Html {
  return html`<details class="fold"${clearHref !== null && html` open`}><summary>Filters</summary>
<form class="${kind}" method="get" action="${path}" role="search">
${fields}
<button>Filter</button>
${clearHref !== null && html`<a href="${clearHref}">Clear filters</a>`}
</form></details>`;
}

/** Instead of a list that is empty. */
export function noMatch(title: string, href: string, name: string): Html {
  return html`<section class="empty"><h2>${title}</h2>
<p><a href="${href}">${name}</a></p></section>`;
}

const ANY = { "": "any" };
const statusCodes = EXPLAINED_STATUSES.map(statusErrorCode);
const families = [
  { label: "The receiver's response", codes: [...statusCodes, ...Object.keys(RESPONSE_ERRORS)] },
  { label: "Connecting", codes: Object.keys(CONNECT_ERRORS) },
  { label: "TLS", codes: Object.keys(TLS_ERRORS) },
  { label: "The URL", codes: Object.keys(URL_REFUSALS) },
];
const inFamilies = new Set(families.flatMap(({ codes }) => codes));
const ERROR_GROUPS = [
  ...families,
  { label: "Others", codes: ATTEMPT_ERROR_CODES.filter((code) => !inFamilies.has(code)) },
];

function errorSelect(asked: string, marked: Part): Html {
  const isListed = ERROR_GROUPS.some(({ codes }) => codes.includes(asked));
  const groups = ERROR_GROUPS.map(
    ({ label, codes }) => html`<optgroup label="${label}">${options(codes, asked)}</optgroup>`,
  );
  return html`<select name="error_code"${marked}>${options(isListed || asked === "" ? [""] : ["", asked], asked, ANY)}
${groups}</select>`;
}
