import { z } from "zod";
import { seal, unseal } from "../base/database/sealing.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { webhookHeaders } from "./webhook.ts";

const HEADERS_MAX = 10;
const NAME_CHARS_MAX = 100;
const VALUE_CHARS_MAX = 2_048;
const SECRET_CHARS_MIN = 8;
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
  // Some servers make one name of both.
  const lower = name.toLowerCase().replaceAll("_", "-");
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
  .superRefine(({ value, secret }, context) => {
    if (!secret || value === undefined || value.length >= SECRET_CHARS_MIN) return;
    const message = `Must have at least ${SECRET_CHARS_MIN} characters if it is secret: shorter ones cannot be hidden.`;
    context.addIssue({ code: "custom", path: ["value"], message });
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
 * The headers that an endpoint has from now on. Secret ones stay secret.
 * @param kept of those it has, the ones that go to its new URL
 * @throws HeaderValueMissing
 */
export function headersAfter(
  kept: readonly EndpointHeader[],
  given: GivenHeaders | undefined,
): readonly EndpointHeader[] {
  if (given === undefined) return kept;
  return given.map(({ name, value, secret }, at) => {
    if (value !== undefined) return { name, value, secret };
    const old = kept.find((one) => one.name.toLowerCase() === name.toLowerCase());
    if (old === undefined || (old.secret && !secret)) throw new HeaderValueMissing(at);
    return { name, value: old.value, secret };
  });
}

const ownerOf = (accountId: string) => ({ accountId, id: accountId });
const originOf = (url: string) => URL.parse(url)?.origin ?? null;

/** For an endpoint at this URL. Null: there are none. */
export function sealHeaders(
  headers: readonly EndpointHeader[],
  url: string,
  accountId: string,
  secretsKey: SecretsKey,
): Buffer | null {
  if (headers.length === 0) return null;
  return seal(JSON.stringify({ origin: originOf(url), headers }), secretsKey, ownerOf(accountId));
}

/**
 * Those that go to this URL, the secret ones only at the origin that they were given for: whoever may change the URL
 * could have them sent to another receiver. Throws as `unseal`.
 */
export function unsealHeaders(
  sealed: Uint8Array | null,
  url: string,
  accountId: string,
  secretsKey: SecretsKey,
): readonly EndpointHeader[] {
  if (sealed === null) return [];
  const kept: { readonly origin: string; readonly headers: readonly EndpointHeader[] } = JSON.parse(
    unseal(sealed, secretsKey, ownerOf(accountId)),
  );
  return kept.origin === originOf(url) ? kept.headers : kept.headers.filter(({ secret }) => !secret);
}

/** As the API shows them. */
export function shownHeaders(headers: readonly EndpointHeader[]) {
  return headers.map(({ name, value, secret }) => ({ name, value: secret ? null : value, secret }));
}

/** As a POST has them. */
export function sentHeaders(headers: readonly EndpointHeader[]): Readonly<Record<string, string>> {
  return Object.fromEntries(headers.map(({ name, value }) => [name.toLowerCase(), value]));
}

const HIDDEN = "[secret]";
/** As much of a text's beginning, where what was answered was cut, says something of it. */
const TOLD_CHARS_MIN = 4;
/** No text of an answer that is recorded is longer. */
const TEXT_CHARS_MAX = 1_024;

/**
 * What hides secret values in an answer, which a receiver may send back and the log would show. Undefined: nothing. For
 * whatever headers and answers, it takes little of the thread: of the forms, only those are compared that begin alike.
 */
export function hidingSecrets(headers: readonly EndpointHeader[]): ((text: string) => string) | undefined {
  const secrets = headers.filter(({ secret }) => secret).flatMap(({ value }) => partsOf(value));
  if (secrets.length === 0) return undefined;
  const forms = new Set(secrets.flatMap(spellingsOf).map((form) => form.slice(0, TEXT_CHARS_MAX)));
  const alike = Map.groupBy(forms, (form) => form.slice(0, TOLD_CHARS_MIN));
  return (text) => {
    let told = "";
    let from = 0;
    for (let at = 0; at + TOLD_CHARS_MIN <= text.length; at++) {
      for (const form of alike.get(text.slice(at, at + TOLD_CHARS_MIN)) ?? []) {
        // All of it or, at the end of the text, its beginning.
        const end = at + form.length;
        if (end <= from || text.slice(at, end) !== form.slice(0, text.length - at)) continue;
        if (at >= from) told += text.slice(from, at) + HIDDEN;
        from = end;
      }
    }
    return told + text.slice(from);
  };
}

/** The value, and what of it an application tells alone: a token without its scheme, Basic's name and password. */
function partsOf(value: string): readonly string[] {
  const [, scheme = "", token = ""] = /^(\S+) +(.*)$/.exec(value) ?? [];
  const basic = scheme.toLowerCase() === "basic" ? Buffer.from(token, "base64").toString() : "";
  const parts = [token, basic, basic.slice(basic.indexOf(":") + 1)];
  return [value, ...parts.filter(({ length }) => length >= TOLD_CHARS_MIN)];
}

/** As it is, in JSON, in a URL, in a form and in HTML. */
function spellingsOf(text: string): readonly string[] {
  const json = JSON.stringify(text).slice(1, -1);
  const ofCode = (char: string) => `\\u00${char.charCodeAt(0).toString(16)}`;
  const url = encodeURIComponent(text);
  const html = text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
  return [
    ...[text, json, json.replaceAll("/", "\\/"), json.replace(/[<>&']/g, ofCode)],
    ...[url, url.replaceAll("%20", "+"), html, html.replaceAll("'", "&#39;"), html.replaceAll("'", "&#x27;")],
    html.replaceAll("'", "&#x27;").replaceAll("/", "&#x2F;").replaceAll("=", "&#x3D;"),
  ];
}
