import { isIPv6 } from "node:net";
import { z } from "zod";
import type { DeliveryFilter } from "../store/delivery-filter.ts";
import { analysisId, deliveryStatus, event } from "./fields.ts";

export const moment = z.iso.datetime({ offset: true });

/** The filters of the delivery log, each by itself; what is asked for has to fit all of them. */
export const filters = {
  status: deliveryStatus,
  event,
  analysis_id: analysisId,
  target_host: z
    .string()
    .regex(/^[A-Za-z0-9._:[\]-]{1,255}$/, "Must be a host name, such as hooks.example.com, or an address.")
    .refine(isHostAlone, { error: "Give the host alone, without a port." })
    .describe("Host name or address of the target, without the port; names of other scripts as `xn--…`."),
  error_code: z
    .string()
    .regex(/^[a-z0-9_]{1,64}$/, "Must be a code as the log has them, such as dns_not_found or status_503.")
    .describe("Of the last attempt, such as `dns_not_found` or `status_503`; one that succeeded has none."),
  status_code: z.int().min(100).max(999).describe("Of the last answer."),
  created_after: moment.describe("Created at this moment or later."),
  created_before: moment.describe("Created before this moment."),
} as const;

/** What was asked for; a member that is absent or null asks for nothing. */
export type AskedFilter = {
  readonly [Name in keyof typeof filters]?: z.output<(typeof filters)[Name]> | null | undefined;
};

type CamelCase<Name extends string> = Name extends `${infer Head}_${infer Rest}`
  ? `${Head}${Capitalize<CamelCase<Rest>>}`
  : Name;

/** The store's filter by the names that are asked for: it does not compile unless the store has each of them. */
type StoreFilter = {
  readonly [Name in keyof typeof filters as CamelCase<Name>]: DeliveryFilter[CamelCase<Name>];
};

export function filterOf(asked: AskedFilter): DeliveryFilter {
  return {
    status: asked.status ?? null,
    event: asked.event ?? null,
    analysisId: asked.analysis_id ?? null,
    targetHost: asked.target_host == null ? null : hostOf(asked.target_host),
    errorCode: asked.error_code ?? null,
    statusCode: asked.status_code ?? null,
    createdAfter: asked.created_after == null ? null : momentOf(asked.created_after),
    createdBefore: asked.created_before == null ? null : momentOf(asked.created_before),
  } satisfies StoreFilter;
}

/** Only an address of IPv6 has colons; with a port, nothing would be found, without a word. */
function isHostAlone(text: string): boolean {
  return !text.includes(":") || isIPv6(text.replace(/^\[(.*)\]$/, "$1"));
}

/** As it stands in URLs: in small letters, an address of IPv6 in brackets. */
function hostOf(text: string): string {
  const host = text.toLowerCase();
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}

/** Nothing is older than the epoch of the ids' time, and a time before it has no id. */
export function momentOf(text: string): Date {
  return new Date(Math.max(0, Date.parse(text)));
}
