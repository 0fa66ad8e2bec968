import { randomBytes } from "node:crypto";
import { isDisplayName } from "../../base/model/formats.ts";

/** File systems take this much, in UTF-8. */
export const FILE_NAME_BYTES_MAX = 255;

/** Path separators, control characters, and what an object's key cannot have. */
const UNFIT = /[/\\\p{Cc}\p{Cs}\uFFFE\uFFFF]/u;

/** Whoever downloads a space gets files of these names: one must not lead elsewhere. */
export function isFileName(text: string): boolean {
  const bytes = Buffer.byteLength(text);
  return bytes > 0 && bytes <= FILE_NAME_BYTES_MAX && !UNFIT.test(text) && text !== "." && text !== "..";
}

/** Whoever downloads a space gets folders of these names: one must not lead elsewhere. */
export function isFolderName(text: string): boolean {
  return isDisplayName(text) && !/[/\\]/.test(text) && text !== "." && text !== "..";
}

/** What of a document its key shows. */
export type KeyParts = {
  readonly storagePrefix: string;
  readonly documentId: string;
  readonly fileName: string;
};

/**
 * A key for a document's object that nothing has had before:
 * `spaces/reports-3f6f2f6f0a11/0199a1f0-7d2c-7c3a-9b1e-5d6f00000001-a1b2c3d4e5f6/Report.pdf`.
 */
export function newObjectKey({ storagePrefix, documentId, fileName }: KeyParts): string {
  return `${storagePrefix}${documentId}-${randomBytes(6).toString("hex")}/${fileName}`;
}

/** Whether the key shows them; if not, the object has to be moved. */
export function isInPlace(key: string, { storagePrefix, documentId, fileName }: KeyParts): boolean {
  return key.startsWith(`${storagePrefix}${documentId}-`) && key.endsWith(`/${fileName}`);
}

const SLUG_CHARS_MAX = 40;

/**
 * Where the objects of a space are kept: `spaces/quarterly-reports-3f6f2f6f0a11/`. Its last digits are those of the
 * space's id, which no other space has, so that names may repeat.
 */
export function storagePrefix(name: string, spaceId: string): string {
  return `spaces/${slug(name)}-${spaceId.slice(-12)}/`;
}

/** For people who look at the store: letters of other alphabets are left out. */
function slug(name: string): string {
  const words = name
    .normalize("NFKD")
    .replaceAll(/(?![a-z])[\p{L}\p{M}]/giu, "")
    .toLowerCase()
    .match(/[a-z0-9]+/g);
  return (words ?? []).join("-").slice(0, SLUG_CHARS_MAX).replace(/-$/, "") || "space";
}
