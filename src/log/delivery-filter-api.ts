import { isIPv6 } from "node:net";
import { z } from "zod";
import { analysisId, event, id, lineOfText, moment } from "../api/fields.ts";
import { TARGET_HOST } from "../base/model/formats.ts";
import { DELIVERY_STATUSES, END_REASONS } from "../base/model/statuses.ts";
import { errorCode } from "./error-codes-api.ts";

/** Deliveries that are read by their ids, which a search or a workflow has found. */
export const FOUND_MAX = 200;

const statusCode = z.int().min(100).max(999);

/** The filters of the delivery log, each by itself; what is asked for has to fit all of them. */
export const filters = {
  status: oneOrSeveral("DeliveryStatus", DELIVERY_STATUSES).describe(
    "One of these; `failed` and `abandoned` need attention.",
  ),
  reason: oneOrSeveral("EndReason", END_REASONS).describe("Abandoned for one of these reasons."),
  event,
  analysis_id: analysisId,
  target_host: z
    .string()
    .regex(TARGET_HOST, "Must be a host name, such as hooks.example.com, or an address.")
    .refine(isHostAlone, { error: "Give the host alone, without a port." })
    .describe("Host name or address of the target, without the port; international names as `xn--…`."),
  error_code: errorCode.describe(
    "Of the last attempt, such as `dns_not_found` or `status_503`; one that succeeded has none.",
  ),
  status_code: statusCode.describe("Of the last response."),
  status_code_min: statusCode.describe("The last response has this status or a higher one."),
  status_code_max: statusCode.describe("The last response has this status or a lower one."),
  replay_id: id.describe("Its current run was started by this bulk replay."),
  created_after: moment.describe("Created at this moment or later."),
  created_before: moment.describe("Created before this moment."),
} as const;

/**
 * The same in a query, where several are written by repeating the parameter. That is what OpenAPI says of a list unless
 * told otherwise, and what all generators of clients write; of a list with commas some make one value.
 */
const queryFilters = {
  ...filters,
  status: z.array(z.enum(DELIVERY_STATUSES)).max(DELIVERY_STATUSES.length).describe(several("status")),
  reason: z.array(z.enum(END_REASONS)).max(END_REASONS.length).describe(several("reason")),
} as const;

function several(name: "status" | "reason"): string {
  return `${filters[name].description} Repeat the parameter for several.`;
}

/** Beside what the log is filtered by, something to be looked for in it. A bulk replay's set knows no search. */
export const searchedFilters = {
  ...queryFilters,
  q: lineOfText
    .min(1)
    .max(255)
    .describe(
      "Finds deliveries whose analysis id begins with this, or whose own id does (at least its first 8 digits). " +
        "Where none does, those whose target's host begins with it.",
    ),
  workflow_id: id.describe(`Published by runs of this workflow; of its newest ${FOUND_MAX} deliveries.`),
} as const;

/** One of a closed set, or a list of some. @param name in the OpenAPI document: in Go, both would get one without it */
export function oneOrSeveral<const Value extends string>(name: string, values: readonly Value[]) {
  const one = z.enum(values).meta({ id: name });
  const error = `Must be one of ${values.join(", ")}, or a list of them.`;
  // What aborts neither of the two is told in zod's words for it, not in ours.
  const abort = true;
  return z.union([one, z.array(one).min(1, { abort }).max(values.length, { abort })], { error });
}

/** What is asked of the log; a member that is absent or null asks for nothing. */
export type DeliveryFilter = {
  readonly [Name in keyof typeof filters]?: Unchanging<z.output<(typeof filters)[Name]>> | null | undefined;
};
export type SearchedFilter = DeliveryFilter & {
  readonly q?: string | null | undefined;
  readonly workflow_id?: string | null | undefined;
};
type Unchanging<Asked> = Asked extends (infer Value)[] ? readonly Value[] : Asked;

export function listOf<Value extends string>(asked: Value | readonly Value[]): readonly Value[] {
  return typeof asked === "string" ? [asked] : asked;
}

/** Only an address of IPv6 has colons; with a port, nothing would be found, without a word. */
function isHostAlone(text: string): boolean {
  return !text.includes(":") || isIPv6(text.replace(/^\[(.*)\]$/, "$1"));
}

/** As it stands in URLs: in small letters, an address of IPv6 in brackets. */
export function hostOf(text: string): string {
  const host = text.toLowerCase();
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}

/** Nothing is older than the epoch of the ids' time, and a time before it has no id. */
export function momentOf(text: string): Date {
  return new Date(Math.max(0, Date.parse(text)));
}

/** Of an id's 32 digits the first eight are a minute. */
export const ID_BEGINNING = /^[0-9a-f]{8}(?:-?[0-9a-f]){0,24}$/i;

/** The first and the last id that begin with these digits. */
export function idsFrom(beginning: string): [string, string] {
  const digits = beginning.replaceAll("-", "").toLowerCase();
  return [digits.padEnd(32, "0"), digits.padEnd(32, "f")];
}
