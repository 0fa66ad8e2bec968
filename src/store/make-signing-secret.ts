import { randomBytes } from "node:crypto";

/** `whsec_` and 32 random bytes in base64. The whole text, prefix included, is the HMAC key. */
export function makeSigningSecret(): string {
  return `whsec_${randomBytes(32).toString("base64")}`;
}
