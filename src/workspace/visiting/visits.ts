import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import type { Pool } from "pg";
import { coalesceByTurn, gatherByTurn } from "../../base/database/coalesce.ts";
import {
  type Counted,
  type CountedPolicy,
  createRequestCounter,
  uncountRequest,
} from "../../base/database/rate-limits.ts";
import { AccountPlaces, sharerOf } from "../../base/model/account-places.ts";
import { digestSecret } from "../../http/api-keys.ts";
import { ANSWER_WITHIN_MS } from "../../http/limits.ts";
import { addressBucket } from "../../http/rate-limits.ts";
import { createTurns, type InTurn } from "../../http/turns.ts";
import { linkState } from "../model/pages.ts";
import { countVisits, type OpenedLink, openLinks, readVersion } from "../store/page-links.ts";
import { RENDERER, type Rendering } from "./rendering.ts";

/** A link's, as it is written: others are not even looked for. */
const TOKEN = /^[\w-]{43}$/;

/** Where links are opened. */
export const LINK_PATH = "/p";

const derive = promisify<string, Uint8Array, number, ScryptOptions, Buffer>(scrypt);

export const PASSWORD_CHARS_MAX = 200;

/** A quarter of a second and 32 MiB. Each hash says its own, so that these can be raised. */
const COST = { log2N: 15, r: 8, p: 3 };
const SALT_BYTES = 16;
const HASH_BYTES = 32;

/** Of the four threads that Node has for such work: the rest of the service has the others. */
const AT_ONCE_MAX = 3;
/** Four passwords. Accounts that have had more lately leave one of the three to those that have not. */
const LIGHT_MS = 1_000;

/** For all passwords of a process, those that visitors try and those that authors set. */
export function createPasswordTurns(): InTurn {
  return createTurns(new AccountPlaces({ placesMax: AT_ONCE_MAX, lightMs: LIGHT_MS }), "a password");
}

/** In a thread of Node's pool: `scrypt$15$8$3$<salt>$<hash>`. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(SALT_BYTES);
  const key = await deriveKey(password, salt, COST);
  return ["scrypt", COST.log2N, COST.r, COST.p, salt.toString("base64"), key.toString("base64")].join("$");
}

/** Takes as long for a wrong one as for the right one. */
async function isPassword(password: string, hashed: string): Promise<boolean> {
  const [, log2N, r, p, salt = "", key = ""] = hashed.split("$");
  const expected = Buffer.from(key, "base64");
  const cost = { log2N: Number(log2N), r: Number(r), p: Number(p) };
  return timingSafeEqual(await deriveKey(password, Buffer.from(salt, "base64"), cost), expected);
}

async function deriveKey(password: string, salt: Uint8Array, { log2N, r, p }: typeof COST): Promise<Buffer> {
  const N = 2 ** log2N;
  // Keyboards write é in two ways.
  return await derive(password.normalize("NFC"), salt, HASH_BYTES, { N, r, p, maxmem: 256 * N * r });
}

/** Wrong passwords of one address for one link, and of all addresses. */
const BY_ADDRESS: CountedPolicy = { requestsMax: 10, windowSeconds: 900 };
const IN_ALL: CountedPolicy = { requestsMax: 200, windowSeconds: 900 };

/** `limited`: there were too many wrong ones. */
type Tried = { readonly kind: "right" } | { readonly kind: "wrong" } | Limited;

function limited({ resetMs }: Counted): Tried {
  return { kind: "limited", retryAfterSeconds: Math.max(1, Math.ceil(resetMs / 1_000)) };
}

type Limited = { readonly kind: "limited"; readonly retryAfterSeconds: number };

/** What a link leads to. `over`: it opens no more; `wrong`, `limited`: of the password that was sent. */
export type Visit =
  | { readonly kind: "unknown" | "over" | "asks" | "wrong" }
  | Limited
  | { readonly kind: "open"; readonly shown: ShownPage | null };

/** What a version shows. */
export type ShownPage = { readonly title: string; readonly html: string };

/** In an account, all visitors share as one user does. */
export const visitorsOf = (accountId: string) => sharerOf(accountId, { userId: "visitors" });

/** What visits share. */
export type Visiting = ReturnType<typeof createVisiting>;

/** @param inTurn of everybody's passwords */
export function createVisiting(pool: Pool, rendering: Pick<Rendering, "renew">, inTurn: InTurn) {
  const find = gatherByTurn((digests) => openLinks(pool, [...digests.keys()]));
  // Visits of one link that come together are counted by one statement, or they would wait for each other's row.
  const countTogether = coalesceByTurn(async (key, visits) => {
    const [accountId = "", id = "", authVersion] = key.split(" ");
    const row = await countVisits(pool, accountId, id, Number(authVersion), visits);
    return row?.counted ?? 0;
  });
  // Exactly: a password is guessed, and a right one is taken back.
  const countTry = createRequestCounter(pool, Number.POSITIVE_INFINITY);

  /** A try counts before it is known to be wrong: only those of one turn can be beyond the limit by chance. */
  async function tryNow({ id, passwordHash }: OpenedLink, password: string, address: string): Promise<Tried> {
    const all = `page-link:${id}`;
    const own = `${all}:${addressBucket(address)}`;
    const byAddress = await countTry(own, BY_ADDRESS);
    if (byAddress.requests > BY_ADDRESS.requestsMax) return limited(byAddress);
    // Not before: what an address is refused shuts nobody else out.
    const inAll = await countTry(all, IN_ALL);
    if (inAll.requests > IN_ALL.requestsMax) return limited(inAll);
    if (passwordHash !== null && !(await isPassword(password, passwordHash))) return { kind: "wrong" };
    await uncountRequest(pool, [own, all]);
    return { kind: "right" };
  }

  return {
    pool,
    rendering,
    /**
     * Null: there is no such link. In no turn, as API keys: whose link it is is not known before, and one turn for all
     * visitors would make all accounts one. Links that are asked for together are found by one statement, which waits
     * for no row: less than to count their requests.
     */
    async findLink(token: string): Promise<OpenedLink | null> {
      return (await find(digestSecret(token).toString("hex"))).answer ?? null;
    },
    /** @throws TemporarilyUnavailable when its turn does not come in time */
    tryPassword(link: OpenedLink, password: string, { address, gone }: Pick<Visitor, "address" | "gone">) {
      const turn = { waitMs: ANSWER_WITHIN_MS, gone };
      return inTurn(link.accountId, turn, () => tryNow(link, password, address));
    },
    /** Whether the visit was counted. */
    async countVisit({ accountId, id, authVersion }: OpenedLink): Promise<boolean> {
      const { answer, place } = await countTogether(`${accountId} ${id} ${authVersion}`);
      return place <= answer;
    },
  };
}

export type Visitor = {
  readonly token: string;
  /** Null: none was sent. */
  readonly password: string | null;
  readonly address: string;
  /** Aborted when nobody waits for the page any more. */
  readonly gone: AbortSignal;
  /** Counts so many bytes as the account's visitors' in memory. @throws when there is no room */
  readonly hold: (accountId: string, bytes: number) => void;
  /** Only wants to know what it would get: nothing is counted, nothing shown. */
  readonly isAsking: boolean;
};

/**
 * Opens a link. A visit is counted once all is there that it shows, and only counted visits show anything.
 * @param inTurn of all work on the database
 * @throws TemporarilyUnavailable when the turn of the link's account does not come in time
 */
export async function visit(visiting: Visiting, visitor: Visitor, inTurn: InTurn): Promise<Visit> {
  const { pool, rendering, findLink, tryPassword, countVisit } = visiting;
  const { token, password, gone, hold, isAsking } = visitor;
  if (!TOKEN.test(token)) return { kind: "unknown" };
  const turn = { waitMs: ANSWER_WITHIN_MS, gone };
  const link = await findLink(token);
  if (link === null) return { kind: "unknown" };
  if (linkState(link) !== "active") return { kind: "over" };
  if (link.passwordHash !== null) {
    if (password === null) return { kind: "asks" };
    const tried = await tryPassword(link, password, visitor);
    if (tried.kind !== "right") return tried;
  }
  if (isAsking) return { kind: "open", shown: null };
  const sharer = visitorsOf(link.accountId);
  const version = await inTurn(sharer, turn, () =>
    readVersion(pool, link.accountId, link.versionId, RENDERER),
  );
  // Its page was deleted meanwhile.
  if (version === null) return await visit(visiting, visitor, inTurn);
  const { title, markdown, ...stored } = version;
  const html = stored.html ?? (await rendering.renew(link, markdown!, gone));
  hold(link.accountId, Buffer.byteLength(html));
  if (await inTurn(sharer, turn, () => countVisit(link))) return { kind: "open", shown: { title, html } };
  // Meanwhile others made the last visits, or its maker has changed it: whatever it is now.
  return await visit(visiting, visitor, inTurn);
}
