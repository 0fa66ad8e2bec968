import { hash, randomBytes } from "node:crypto";

/** What a link's URL ends in: 32 bytes that nobody guesses. */
const TOKEN_BYTES = 32;

/** A link's, as it is written: others are not even looked for. */
export const TOKEN = /^[\w-]{43}$/;

export function newToken(): string {
  return randomBytes(TOKEN_BYTES).toString("base64url");
}

export function digestToken(token: string): Buffer {
  return hash("sha256", token, "buffer");
}

/** Where links are opened. */
export const LINK_PATH = "/p";
