import { z } from "zod";
import { seal, unseal } from "../base/database/sealing.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { webhookHeaders } from "./webhook.ts";

const HEADERS_MAX = 10;
const NAME_CHARS_MAX = 100;
const VALUE_CHARS_MAX = 2_048;
/** Servers take 8 KB of all headers, some 16. */
const CHARS_MAX = 6_000;

/** What HTTP and the connection say, and what every webhook has. */
const RESERVED = new Set([
  ...["host", "connection", "keep-alive", "upgrade", "te", "trailer", "transfer-encoding", "expect"],
  ...["http2-settings", "accept-encoding", "date", "via", "tracestate"],
  ...Object.keys(webhookHeaders({ signature: "", traceparent: "" })),
]);
const RESERVED_BEGINNINGS = ["content-", "proxy-", "webhook-", "sealpost-", "sec-"];

/** A header that webhooks to the endpoint have beside the service's own: for a gateway that asks for one. */
export type EndpointHeader = { readonly name: string; readonly value: string; readonly secret: boolean };

/** Why a header of this name cannot be sent; null: it can. */
function nameFault(name: string): string | null {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name))
    return "Must be a header's name: letters, digits and hyphens, without spaces or colons.";
  if (name.length > NAME_CHARS_MAX) return `Must have at most ${NAME_CHARS_MAX} characters.`;
  const lower = name.toLowerCase();
  const isReserved =
    RESERVED.has(lower) || RESERVED_BEGINNINGS.some((beginning) => lower.startsWith(beginning));
  return isReserved ? `${lower} is set by HTTP or by the service itself.` : null;
}

function valueFault(value: string): string | null {
  if (value === "") return "Must not be empty.";
  if (value.length > VALUE_CHARS_MAX) return `Must have at most ${VALUE_CHARS_MAX} characters.`;
  if (!/^[ -~]*$/.test(value))
    return "Must be ASCII without control characters (no line breaks, tabs, umlauts).";
  return value === value.trim() ? null : "Must have no spaces around it.";
}

/** Tells of a fault as the field's. */
const judged = (fault: (text: string) => string | null) =>
  z.string().superRefine((text, context) => {
    const message = fault(text);
    if (message !== null) context.addIssue({ code: "custom", message });
  });

const NewEndpointHeader = z
  .strictObject({
    name: judged(nameFault).meta({ maxLength: NAME_CHARS_MAX, example: "CF-Access-Client-Secret" }),
    value: judged(valueFault)
      .meta({ maxLength: VALUE_CHARS_MAX })
      .optional()
      .describe("Absent: as it is, where the endpoint has a header of this name."),
    secret: z
      .boolean()
      .describe(
        "Whether its value is never shown again, and is gone once the endpoint is at another origin.",
      ),
  })
  .meta({
    id: "NewEndpointHeader",
    description: "A header that is sent along with every webhook to the endpoint.",
  });

export const NewEndpointHeaders = z
  .array(NewEndpointHeader)
  .max(HEADERS_MAX)
  .superRefine((headers, context) => {
    const names = headers.map(({ name }) => name.toLowerCase());
    for (const [at, name] of names.entries())
      if (names.indexOf(name) !== at)
        context.addIssue({ code: "custom", path: [at, "name"], message: "This header is there already." });
    const chars = headers.reduce((sum, { name, value = "" }) => sum + name.length + value.length, 0);
    if (chars > CHARS_MAX)
      context.addIssue({ code: "custom", message: `Must have at most ${CHARS_MAX} characters together.` });
  })
  .describe(
    "Headers of your own, up to 10, for a gateway in front of your receiver. Not sent to a `webhook_url`. All of " +
      "them, each time: one that is left out is removed. Absent: as they are.",
  );

export type GivenHeaders = z.output<typeof NewEndpointHeaders>;

/** Where one of those given leaves its value out and there is none to be kept. */
export class HeaderValueMissing extends Error {
  override readonly name = "HeaderValueMissing";
  readonly at: number;

  constructor(at: number) {
    super("There is no value to be kept: send one.");
    this.at = at;
  }
}

/**
 * The headers that an endpoint has from now on. Whoever may change its URL could have the secret ones sent to another
 * receiver, so they stay only at the same origin, and stay secret.
 * @throws HeaderValueMissing
 */
export function headersAfter(
  before: readonly EndpointHeader[],
  given: GivenHeaders | undefined,
  isSameOrigin: boolean,
): readonly EndpointHeader[] {
  const kept = isSameOrigin ? before : before.filter(({ secret }) => !secret);
  if (given === undefined) return kept;
  return given.map(({ name, value, secret }, at) => {
    if (value !== undefined) return { name, value, secret };
    const old = kept.find((one) => one.name.toLowerCase() === name.toLowerCase());
    if (old === undefined || (old.secret && !secret)) throw new HeaderValueMissing(at);
    return { name, value: old.value, secret };
  });
}

const ownerOf = (accountId: string) => ({ accountId, id: accountId });

/** Null: there are none. */
export function sealHeaders(
  headers: readonly EndpointHeader[],
  accountId: string,
  secretsKey: SecretsKey,
): Buffer | null {
  return headers.length === 0 ? null : seal(JSON.stringify(headers), secretsKey, ownerOf(accountId));
}

/** Throws as `unseal`. */
export function unsealHeaders(
  sealed: Uint8Array | null,
  accountId: string,
  secretsKey: SecretsKey,
): readonly EndpointHeader[] {
  return sealed === null ? [] : JSON.parse(unseal(sealed, secretsKey, ownerOf(accountId)));
}

/** As the API shows them. */
export function shownHeaders(headers: readonly EndpointHeader[]) {
  return headers.map(({ name, value, secret }) => ({ name, value: secret ? null : value, secret }));
}

/** As a POST has them. */
export function sentHeaders(headers: readonly EndpointHeader[]): Readonly<Record<string, string>> {
  return Object.fromEntries(headers.map(({ name, value }) => [name.toLowerCase(), value]));
}

/** As much of a value's beginning, at the end of a text that was cut, says something of it. */
const TOLD_CHARS_MIN = 4;

/** Without the secret values, which a receiver may send back, and the log would then show. */
export function withoutSecrets(text: string, headers: readonly EndpointHeader[]): string {
  let told = text;
  for (const { value, secret } of headers) {
    if (!secret) continue;
    for (const form of new Set([value, JSON.stringify(value).slice(1, -1), encodeURIComponent(value)])) {
      told = told.replaceAll(form, HIDDEN);
      for (let chars = form.length - 1; chars >= TOLD_CHARS_MIN; chars--)
        if (told.endsWith(form.slice(0, chars))) told = told.slice(0, -chars) + HIDDEN;
    }
  }
  return told;
}

const HIDDEN = "[secret]";
