import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

/**
 * How secrets lie in the database: AES-256-GCM under the configured key. The account and the row's id are authenticated
 * along, so that a sealed text copied to another row does not open.
 *
 * Layout: 1 byte version, 12 bytes nonce, the encrypted text, 16 bytes tag.
 */
const VERSION = 1;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export type SealedFor = { readonly accountId: string; readonly id: string };

/** `key`: 32 bytes. */
export function seal(text: string, key: Uint8Array, owner: SealedFor): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  cipher.setAAD(associated(owner));
  const encrypted = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([Buffer.of(VERSION), nonce, encrypted, cipher.getAuthTag()]);
}

/** Throws when the key is another one, or the text was sealed for somebody else. */
export function unseal(sealed: Uint8Array, key: Uint8Array, owner: SealedFor): string {
  const text = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
  try {
    if (text[0] !== VERSION) throw new Error(`unknown version ${text[0]}`);
    const decipher = createDecipheriv("aes-256-gcm", key, text.subarray(1, 1 + NONCE_BYTES));
    decipher.setAAD(associated(owner));
    decipher.setAuthTag(text.subarray(text.length - TAG_BYTES));
    const encrypted = text.subarray(1 + NONCE_BYTES, text.length - TAG_BYTES);
    return Buffer.concat([decipher.update(encrypted), decipher.final()]).toString("utf8");
  } catch (cause) {
    throw new Error(
      `secret ${owner.id} does not open: it was sealed with another SECRETS_KEY, or was changed`,
      { cause },
    );
  }
}

function associated(owner: SealedFor): Buffer {
  return Buffer.from(`${owner.accountId}/${owner.id}`);
}
