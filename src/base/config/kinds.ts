import { createSecretKey, type KeyObject } from "node:crypto";
import { isIP } from "node:net";
import { z } from "zod";
import { scopes } from "../model/api-keys.ts";
import { judgeMailAddress } from "../model/formats.ts";

/** Which texts a variable accepts, and what they become. */
export type VariableKind<T> = {
  readonly schema: z.ZodType<T, string>;
  /** Completes the sentence "… must be". */
  readonly expected: string;
  /** True where the text may be a secret: it is never shown, not even when it is not valid. */
  readonly isSecret: boolean;
};

/** The same kind, never shown in a message. */
export function secret<T>(kind: VariableKind<T>): VariableKind<T> {
  return { ...kind, isSecret: true };
}

/** A whole number in decimal digits, from `min` to `max` inclusive. */
export function wholeNumber(min: number, max: number): VariableKind<number> {
  const schema = z
    .string()
    .regex(/^\d{1,15}$/)
    .transform(Number)
    .pipe(z.int().min(min).max(max));
  return kind(`a whole number from ${min} to ${max}`, schema);
}

export function oneOf<const T extends string>(...choices: readonly T[]): VariableKind<T> {
  return kind(`one of ${choices.join(", ")}`, z.string().pipe(z.enum(choices)));
}

/** Text that matches `pattern`, kept as written. */
export function text(expected: string, pattern: RegExp): VariableKind<string> {
  return kind(expected, z.string().regex(pattern));
}

/** An absolute URL with one of `protocols`, kept as written. */
export function address(expected: string, protocols: readonly string[]): VariableKind<string> {
  return textThat(expected, (value) => hasProtocol(value, protocols));
}

export function isDatabaseUrl(text: string): boolean {
  return hasProtocol(text, ["postgres:", "postgresql:"]);
}

/** It may hold a password. */
export function databaseUrl(): VariableKind<string> {
  return secret(textThat("a PostgreSQL URL such as postgres://user:password@host:5432/name", isDatabaseUrl));
}

/** An smtp or smtps URL of a server, with or without credentials and port, and nothing else. It may hold a password. */
export function smtpServer(): VariableKind<string> {
  const isServer = (value: string) => {
    if (!hasProtocol(value, ["smtp:", "smtps:"])) return false;
    const { hostname, pathname, search, hash, username, password } = new URL(value);
    const isDecodable = [username, password].every((part) => !/%(?![0-9a-f]{2})/i.test(part));
    return hostname !== "" && /^\/?$/.test(pathname) && search + hash === "" && isDecodable;
  };
  return secret(textThat("an smtp or smtps URL such as smtp://user:password@mail.example.com:587", isServer));
}

/** `name@example.com` or `Name <name@example.com>`; the name without quotes, commas and the like. */
export function mailSender(): VariableKind<string> {
  const isSender = (value: string) => {
    const [, , bracketed, plain = bracketed ?? ""] =
      /^(?:([\p{L}\p{N} .&'-]{1,100}) <([^<>]+)>|([^<>]+))$/u.exec(value) ?? [];
    return judgeMailAddress(plain).isAllowed;
  };
  return textThat("an address such as notices@example.com or Example <notices@example.com>", isSender);
}

/** An http or https URL that paths are appended to: without query, fragment and trailing slash. */
export function baseUrl(): VariableKind<string> {
  const schema = z
    .string()
    .refine((value) => hasProtocol(value, ["http:", "https:"]) && !/[?#]/.test(value))
    .transform((value) => value.replace(/\/+$/, ""));
  return kind("an http or https URL without query or fragment", schema);
}

/** `https://app.example.com`: a scheme and a host as a browser writes them, and nothing else. */
export function isOrigin(text: string): boolean {
  return hasProtocol(text, ["http:", "https:"]) && new URL(text).origin === text;
}

/** An origin, and nothing else. */
export function origin(): VariableKind<string> {
  return textThat("an origin such as https://pages.example.com", isOrigin);
}

/** A comma-separated list of at least one item; spaces around items are allowed. */
export function list(expected: string, accepts: (item: string) => boolean): VariableKind<readonly string[]> {
  const schema = z
    .string()
    .transform((value) => value.split(",").map((item) => item.trim()))
    .refine((items) => items.every(accepts))
    .transform((items) => Object.freeze(items));
  return kind(expected, schema);
}

/** A comma-separated list of some of `choices`, each once, in their order. */
export function someOf<const T extends string>(...choices: readonly T[]): VariableKind<readonly T[]> {
  const schema = list("", (item) => choices.some((choice) => choice === item)).schema.transform((items) =>
    Object.freeze(choices.filter((choice) => items.includes(choice))),
  );
  return kind(`a comma-separated list of any of ${choices.join(", ")}`, schema);
}

const claim = z.string().regex(/^\S{1,500}$/);

const StaffJwt = z.strictObject({
  /** The header that brings it. */
  header: z.string().regex(/^[A-Za-z0-9-]{1,100}$/),
  issuer: claim,
  audience: claim,
  /** URL of the proxy's public keys. */
  jwks_url: z.string().refine((value) => hasProtocol(value, ["https:", "http:"])),
  /** What members of a group may do; `*`: whomever the proxy lets through. */
  scopes: z.record(z.string().min(1), z.array(z.enum(scopes)).min(1)),
});

/** How a proxy in front says who support staff are, by a signed assertion (JWT). */
export type StaffJwt = Readonly<z.output<typeof StaffJwt>>;

/** One object in JSON: an assertion is checked by all of it. */
export function staffJwt(): VariableKind<StaffJwt> {
  const schema = z
    .string()
    .transform((value, context) => {
      try {
        return JSON.parse(value);
      } catch {
        context.addIssue("not JSON");
        return z.NEVER;
      }
    })
    .pipe(StaffJwt);
  const expected =
    "JSON with nothing but header, issuer, audience, jwks_url (an https URL, in development also http) and scopes, " +
    'such as {"support": ["staff:read"]}';
  return kind(expected, schema);
}

/** Where S3 is. Its credentials are variables of their own. */
export type S3Address = {
  readonly bucket: string;
  /** Null: Amazon's own in the region. */
  readonly endpoint: string | null;
  readonly region: string;
  readonly isPathStyle: boolean;
};

const S3_PARAMETERS = {
  endpoint: isOrigin,
  region: (value: string) => /^[a-z0-9-]{1,40}$/.test(value),
  path_style: (value: string) => value === "true" || value === "false",
};

/** `s3://bucket?endpoint=https://s3.example.com&region=eu-central-1&path_style=true`. Some write keys into it. */
export function s3Address(): VariableKind<S3Address> {
  const isAddress = (value: string) => {
    if (!hasProtocol(value, ["s3:"])) return false;
    const { hostname, host, pathname, hash, username, password, searchParams } = new URL(value);
    const isBucket = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(hostname);
    const isAlone = host === hostname && /^\/?$/.test(pathname) && hash + username + password === "";
    const names = [...searchParams.keys()];
    const isEach = Object.entries(S3_PARAMETERS).every(([name, accepts]) =>
      searchParams.getAll(name).every(accepts),
    );
    const areKnown = names.every((name) => name in S3_PARAMETERS) && new Set(names).size === names.length;
    return isBucket && isAlone && areKnown && isEach;
  };
  const schema = z
    .string()
    .refine(isAddress)
    .transform((value): S3Address => {
      const { hostname, searchParams } = new URL(value);
      return Object.freeze({
        bucket: hostname,
        endpoint: searchParams.get("endpoint"),
        region: searchParams.get("region") ?? "us-east-1",
        isPathStyle: searchParams.get("path_style") === "true",
      });
    });
  const expected =
    "s3://bucket, optionally followed by ?endpoint=https://s3.example.com&region=eu-central-1&path_style=true, and " +
    "nothing else";
  return secret(kind(expected, schema));
}

/** 32 bytes in base64, as a key object, which prints without its content wherever it ends up. */
export function aesKey(): VariableKind<KeyObject> {
  const schema = z
    .string()
    .regex(/^[A-Za-z0-9+/]{43}=$/)
    .transform((value) => createSecretKey(Buffer.from(value, "base64")));
  return secret(kind("exactly 32 bytes in base64, as `openssl rand -base64 32` prints them", schema));
}

/** An IPv4 or IPv6 address with or without a port; an IPv6 address with one is in brackets. */
export function isAddressWithPort(item: string): boolean {
  const bracketed = /^\[(?<host>[^\]]+)\](?::(?<port>\d{1,5}))?$/.exec(item)?.groups;
  if (bracketed) return isIP(bracketed.host ?? "") === 6 && isPort(bracketed.port);
  if (isIP(item) !== 0) return true;
  const [host = "", port, ...rest] = item.split(":");
  return rest.length === 0 && isIP(host) === 4 && port !== undefined && isPort(port);
}

/** `host:port`, `*.name:port`, `1.2.3.4:port` or `[::1]:port`. */
export function isHostWithPort(item: string): boolean {
  const parts = /^(?<host>\[[0-9a-f:.]+\]|(?:\*\.)?[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?):(?<port>\d{1,5})$/i;
  const groups = parts.exec(item)?.groups;
  return groups !== undefined && isPort(groups.port);
}

/** An IPv4 or IPv6 address, or a CIDR block (`10.0.0.0/8`). */
export function isAddressOrBlock(item: string): boolean {
  const [host = "", bits, ...rest] = item.split("/");
  const family = isIP(host);
  if (family === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128));
}

/** False: no proxy; or the number of proxies in front, or their addresses. All clients can never be trusted. */
export function proxyTrust(): VariableKind<false | number | readonly string[]> {
  const addresses = list("", isAddressOrBlock).schema;
  const hops = wholeNumber(1, 10).schema;
  const none = z.literal("false").transform(() => false as const);
  const schema = z.string().pipe(z.union([none, hops, addresses]));
  return kind("false, the number of proxies in front (1 to 10), or their comma-separated addresses", schema);
}

function textThat(expected: string, accepts: (value: string) => boolean): VariableKind<string> {
  return kind(expected, z.string().refine(accepts));
}

function kind<T>(expected: string, schema: z.ZodType<T, string>): VariableKind<T> {
  return { schema, expected, isSecret: false };
}

function hasProtocol(value: string, protocols: readonly string[]): boolean {
  return URL.canParse(value) && protocols.includes(new URL(value).protocol);
}

function isPort(digits: string | undefined): boolean {
  return digits === undefined || (Number(digits) >= 1 && Number(digits) <= 65_535);
}
