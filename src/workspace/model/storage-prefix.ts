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
