import type { Rule } from "./source-files.ts";

type Locked = { readonly version?: string; readonly integrity?: string; readonly resolved?: string };

/**
 * Every package is pinned by its content, or `npm ci` takes whatever a registry sends under its name; and no registry
 * is named, so that anybody's mirror serves. npm adds no integrity to an entry that once lacked it.
 */
export const lockFile: Rule = {
  name: "lock file",
  find: (files) =>
    files
      .filter(({ path }) => path === "package-lock.json")
      .flatMap(({ path, text }) => {
        const { packages } = JSON.parse(text) as { packages: Record<string, Locked> };
        return Object.entries(packages)
          .filter(([name]) => name !== "")
          .flatMap(([name, { version, integrity = "", resolved }]) => [
            ...(/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity)
              ? []
              : [`pins no content of ${name}: add what npm view ${nameOf(name)}@${version} says`]),
            ...(resolved === undefined ? [] : [`names where $namecomes from: take "resolved" out`]),
          ])
          .map((message) => ({ rule: "lock file", path, message }));
      }),
};

/** `node_modules/a/node_modules/@b/c` → `@b/c`. */
function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
}
