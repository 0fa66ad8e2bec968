import { accessSync, constants } from "node:fs";
import { delimiter, join, sep } from "node:path";

/**
 * The path of the machine's own command of this name, or null. Skips node_modules folders: npm puts them first, and
 * the `node` in them is the one that runs the tests.
 */
export function commandOnPath(name: string): string | null {
  const folders = (process.env.PATH ?? "").split(delimiter);
  for (const folder of folders.filter((folder) => !folder.split(sep).includes("node_modules"))) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not here.
    }
  }
  return null;
}
