import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";

/** A file of the repository: its path from the root with forward slashes, and its whole text. */
export type SourceFile = { readonly path: string; readonly text: string };

/** Something that a rule forbids, where it stands, and what to do instead. */
export type Breach = { readonly rule: string; readonly path: string; readonly message: string };

/** One thing that holds everywhere. `name` is what an exception is listed under. */
export type Rule = { readonly name: string; readonly find: (files: readonly SourceFile[]) => Breach[] };

const root = fileURLToPath(new URL("../..", import.meta.url));
const folders = ["src", "packages", "test", "sql", "scripts", "docs", "grafana", ".ci"];
const readEndings = [
  /\.(?:ts|mjs|css|sql|sh|md)$/,
  /^packages\/.+\.(?:py|go)$/,
  /^grafana\/.+\.(?:json|ya?ml)$/,
  /^(?:\.ci\/run|(?:compose|Docker|package-lock).*)$/,
];

/** All code that we wrote, and the texts at the root. Does not ask git, so that an image has the same list. */
export function readSourceFiles(): SourceFile[] {
  const atRoot = readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = [...atRoot.map((entry) => entry.name), ...folders.flatMap(filesBelow)];
  return paths
    .filter((path) => readEndings.some((ending) => ending.test(path)))
    .sort()
    .map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));
}

function filesBelow(folder: string): string[] {
  try {
    const entries = readdirSync(join(root, folder), { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(root.length).replaceAll("\\", "/"));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** The text without comments; line breaks stay, so that lines keep their numbers. */
export function withoutComments(text: string): string {
  const blank = (comment: string) => comment.replace(/[^\n]/g, " ");
  return text.replace(/\/\*[\s\S]*?\*\//g, blank).replace(/(?<=^|\s)\/\/[^\n]*/gm, blank);
}

/** The text with texts in double quotes emptied; templates stay, since they hold code. */
export function withoutTexts(text: string): string {
  return text.replace(/"(?:[^"\\\n]|\\.)*"/g, '""');
}

/**
 * What a file imports: paths from the root for our own files, names for packages. Types count like values, and
 * what a document shows is no import.
 */
export function importsOf(file: SourceFile): string[] {
  if (file.path.endsWith(".md")) return [];
  const code = withoutComments(file.text);
  const specifiers = /(?:\bfrom\s+|\bimport\s+|\bimport\(\s*)"([^"]+)"/g;
  return [...code.matchAll(specifiers)].map(([, specifier = ""]) =>
    specifier.startsWith(".") ? posix.join(dirname(file.path), specifier) : specifier,
  );
}
