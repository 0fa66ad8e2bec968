import { hash, randomBytes } from "node:crypto";
import type { KeyClass } from "../base/model/api-keys.ts";
import { TtlMap } from "../base/model/caches.ts";
import { REMEMBERED_KEYS_MAX } from "./limits.ts";

/** A key as the store knows it. */
export type ApiKey = {
  readonly id: string;
  /** The account that owns it; null for a staff key, which has access to every account. */
  readonly accountId: string | null;
  /** The user that it acts for; null: none. */
  readonly userId: string | null;
  readonly scopes: ReadonlySet<string>;
  /** Null: it does not expire. */
  readonly expiresAt: Date | null;
  /** Null: it has not been revoked. */
  readonly revokedAt: Date | null;
};

/** Finds a key, revoked and expired ones included, by the SHA-256 of its whole text; null if there is none. */
export type FindApiKey = (digest: Buffer) => Promise<ApiKey | null>;

/** `svc_live_` for production, `svc_test_` for development, where the brand is `svc`. */
export function apiKeyPrefix(brand: string, keyClass: KeyClass): string {
  return `${brand}_${keyClass}_`;
}

/** The text of a key, shown once to its owner. `secret`: 32 random bytes. */
export function formatApiKey(brand: string, keyClass: KeyClass, secret: Uint8Array): string {
  if (secret.length !== 32) throw new RangeError(`An API key has 32 secret bytes, not ${secret.length}.`);
  return apiKeyPrefix(brand, keyClass) + Buffer.from(secret).toString("base64url");
}

/** What a link ends in, or a cookie holds: 43 characters for 256 random bits. */
export function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

/** What is stored of a key, or of such a secret. A plain hash is enough for 256 random bits. */
export function digestSecret(text: string): Buffer {
  return hash("sha256", text, "buffer");
}

const REMEMBERED_FOR_MS = 3_600_000;
/** Its use is noted once a minute, by whoever looks it up. */
const RECENT_MS = 30_000;
const BEARER = /^bearer +([\w.~+/=-]{1,256})$/i;

export type Authenticate = ReturnType<typeof createAuthenticate>;

export type AuthenticateOptions = {
  readonly findApiKey: FindApiKey;
  /** The prefixes of the keys of this environment, from `apiKeyPrefix`: one for each brand. */
  readonly keyPrefixes: readonly string[];
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

/**
 * Authenticates a request. All invalid keys look the same to the caller. The lookup is by digest, so its timing is of
 * no use to a guesser, and it comes before any other check.
 */
export function createAuthenticate({ findApiKey, keyPrefixes, now }: AuthenticateOptions) {
  const valid = new TtlMap<string, { readonly key: ApiKey; readonly foundAtMs: number }>(REMEMBERED_KEYS_MAX);

  async function find(digest: Buffer, id: string, isOfThisEnvironment: boolean): Promise<ApiKey | null> {
    const key = await findApiKey(digest);
    const isValid = key?.revokedAt === null && (key.expiresAt === null || key.expiresAt.getTime() > now());
    if (!isValid || !isOfThisEnvironment) {
      valid.delete(id);
      return null;
    }
    valid.set(id, { key, foundAtMs: performance.now() }, REMEMBERED_FOR_MS);
    return key;
  }

  return (authorization: string | undefined) => {
    const text = authorization === undefined ? undefined : BEARER.exec(authorization)?.[1];
    if (text === undefined) return { expected: null, isRecent: false, find: async () => null };
    const digest = digestSecret(text);
    const id = digest.toString("latin1");
    const isOfThisEnvironment = keyPrefixes.some((prefix) => text.startsWith(prefix));
    const known = valid.get(id);
    let found: Promise<ApiKey | null> | null = null;
    return {
      /** The key as it was when it was last found valid: never good for letting anybody in. Null: not known. */
      expected: known?.key ?? null,
      /** Found not long ago: whoever looks at it again in the transaction of its effect need not find it before. */
      isRecent: known !== undefined && performance.now() - known.foundAtMs < RECENT_MS,
      /** Null for one that is missing, malformed, unknown, revoked, expired, or not of this environment. Asked once. */
      find: () => (found ??= find(digest, id, isOfThisEnvironment)),
    };
  };
}
