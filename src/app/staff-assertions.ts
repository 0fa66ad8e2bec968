import {
  createRemoteJWKSet,
  customFetch,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from "jose";
import type { Config } from "../base/config/config.ts";
import type { StaffJwt } from "../base/config/kinds.ts";
import type { ReadAssertion, StaffPerson } from "../console/site.ts";
import { TemporarilyUnavailable } from "../http/problems.ts";

/** Signatures that only the proxy can make: no `none`, and none whose key we would share. */
const ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"];
/** A proxy has a handful of keys. */
const KEYS_BYTES_MAX = 65_536;
const KEYS_WITHIN_MS = 2_000;
const KEYS_KEPT_MS = 600_000;
/** An unknown key may be a new one; asked for no more often than this, whoever invents key ids. */
const KEYS_ASKED_EVERY_MS = 30_000;
/** After a failure: who comes meanwhile is refused at once, or each of them would cause another. */
const KEYS_AWAY_MS = 5_000;
const CLOCKS_APART_SECONDS = 30;
const NAME_CHARS_MAX = 200;
/** Whomever the proxy lets through. */
const ANYBODY = "*";
/** What is compared, and stored. */
const SUBJECT = /^[^\p{Cc}\p{Cs}]{1,200}$/u;

/**
 * Reads the signed assertion of a proxy in front. Null: no proxy is configured, and nothing is believed.
 * @param now milliseconds since the epoch
 * @param onKeysAway the proxy's keys could not be had
 */
export function createReadAssertion(
  { staffJwt }: Pick<Config, "staffJwt">,
  now: () => number,
  onKeysAway: (error: unknown) => void,
): ReadAssertion | null {
  if (staffJwt === null) return null;
  const { issuer, audience, scopes } = staffJwt;
  const header = staffJwt.header.toLowerCase();
  const findKey = keysOf(new URL(staffJwt.jwks_url), now, onKeysAway);
  return async (headers) => {
    const sent = headers[header];
    if (typeof sent !== "string" || sent === "") return null;
    try {
      const { payload } = await jwtVerify(sent.replace(/^bearer +/i, ""), findKey, {
        algorithms: ALGORITHMS,
        issuer,
        audience,
        requiredClaims: ["exp", "sub"],
        clockTolerance: CLOCKS_APART_SECONDS,
        currentDate: new Date(now()),
      });
      return personOf(payload, scopes);
    } catch (error) {
      if (error instanceof errors.JOSEError) return null;
      throw error;
    }
  };
}

const OF_THE_ASSERTION = [
  errors.JWKSNoMatchingKey,
  errors.JWKSMultipleMatchingKeys,
  errors.JOSENotSupported,
] as const;

/** @throws TemporarilyUnavailable where the keys cannot be had: that is no fault of who asks */
function keysOf(url: URL, now: () => number, onKeysAway: (error: unknown) => void): JWTVerifyGetKey {
  let awayUntilMs = 0;
  const fetchKeys = async (address: string, options: RequestInit) => {
    if (now() < awayUntilMs) throw new Error("The key set could not be fetched a moment ago.");
    try {
      return await fetchKeySet(address, options);
    } catch (error) {
      awayUntilMs = now() + KEYS_AWAY_MS;
      onKeysAway(error);
      throw error;
    }
  };
  const remote = createRemoteJWKSet(url, {
    timeoutDuration: KEYS_WITHIN_MS,
    cacheMaxAge: KEYS_KEPT_MS,
    cooldownDuration: KEYS_ASKED_EVERY_MS,
    [customFetch]: fetchKeys,
  });
  return async (protectedHeader, token) => {
    try {
      return await remote(protectedHeader, token);
    } catch (cause) {
      if (OF_THE_ASSERTION.some((kind) => cause instanceof kind)) throw cause;
      const why = "the key set of the proxy in front of staff cannot be fetched";
      throw new TemporarilyUnavailable(why, { cause });
    }
  };
}

/** One answer, of bounded size, that holds keys; the signal that comes along bounds its time. */
async function fetchKeySet(url: string, options: RequestInit): Promise<Response> {
  const response = await fetch(url, { ...options, redirect: "error" });
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > KEYS_BYTES_MAX)
      throw new Error(`The key set at ${url} is larger than ${KEYS_BYTES_MAX} bytes.`);
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString();
  if (!response.ok) throw new Error(`The request for the key set at ${url} got status ${response.status}.`);
  if (!Array.isArray(JSON.parse(text)?.keys)) throw new Error(`The response from ${url} is not a key set.`);
  return new Response(text);
}

function personOf(payload: JWTPayload, scopes: StaffJwt["scopes"]): StaffPerson | null {
  const { sub, name, email, groups = [] } = payload;
  if (typeof sub !== "string" || !SUBJECT.test(sub)) return null;
  const member = new Set([groups].flat());
  const granted = Object.entries(scopes)
    .filter(([group]) => group === ANYBODY || member.has(group))
    .flatMap(([, each]) => each);
  const named = [name, email].find((one) => typeof one === "string" && one.trim() !== "") ?? sub;
  // What a column of text takes, and a list shows in a line.
  const plain = String(named).replaceAll(/[\p{Cc}\p{Cs}]/gu, " ");
  return { id: sub, name: plain.trim().slice(0, NAME_CHARS_MAX), scopes: new Set(granted) };
}
