// How keys become paths below the store's folder, and back. Names are kept readable for who looks into a backup:
// - `a-z`, `0-9`, `_`, `-`, and a dot between two of them, stand for themselves; every other byte of UTF-8 is `%` and
//   two digits. So no two keys share a path where capitals, accents or trailing dots do not count, and none leaves the
//   folder.
// - An object's name ends with `=`, so it is no folder's.
// - A longer name goes on in a folder: `…+/…`. File systems take 255 bytes, encrypted ones 143.

/** Up to 120 characters; an encoded byte is not cut in two. */
const PIECES = /.{1,120}(?<!%.?)/g;
const GOES_ON = "+";
const IS_OBJECT = "=";

/** The object's path, from the store's folder. */
export function pathOf(key: string): string {
  return `${folderOf(key)}${IS_OBJECT}`;
}

/** The folder in which all is that begins with `prefix`, from the store's folder; there may be other things in it. */
export function folderBelow(prefix: string): string {
  const end = prefix.lastIndexOf("/");
  return end <= 0 ? "." : folderOf(prefix.slice(0, end));
}

/** The key of the object at a path, or null where the path is none of ours. */
export function keyOf(path: string): string | null {
  if (!path.endsWith(IS_OBJECT)) return null;
  const encoded = path.slice(0, -IS_OBJECT.length).replaceAll(`${GOES_ON}/`, "");
  try {
    const key = decodeURIComponent(encoded);
    return pathOf(key) === path ? key : null;
  } catch {
    return null;
  }
}

function folderOf(key: string): string {
  return key.split("/").map(encode).join("/");
}

function encode(segment: string): string {
  const bytes = [...Buffer.from(segment)].map(encodeByte).join("");
  const encoded = bytes.replace(/(?<![a-z0-9_-])\.|\.(?![a-z0-9_-])/g, "%2e");
  return (encoded.match(PIECES) ?? []).join(`${GOES_ON}/`);
}

function encodeByte(byte: number): string {
  const character = String.fromCharCode(byte);
  return /[a-z0-9_.-]/.test(character) ? character : `%${byte.toString(16).padStart(2, "0")}`;
}
