import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { createTurns, type InTurn } from "../../api/turns.ts";
import { AccountPlaces } from "../../model/account-places.ts";

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
export async function isPassword(password: string, hashed: string): Promise<boolean> {
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
