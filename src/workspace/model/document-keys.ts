import { randomBytes } from "node:crypto";

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
