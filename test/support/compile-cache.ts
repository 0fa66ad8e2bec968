// vitest global setup: the suite's processes keep what they compile, which halves what each start of a command costs.
import { fileURLToPath } from "node:url";

/** Node's own; what is in it is worth nothing and can be deleted at any time. */
const VARIABLE = "NODE_COMPILE_CACHE";

export function setup(): void {
  process.env[VARIABLE] ??= fileURLToPath(new URL("../../.cache/compiled", import.meta.url));
}

/** For processes whose environment is otherwise their own; empty outside vitest. */
export function compileCacheEnv(): Readonly<Record<string, string>> {
  const folder = process.env[VARIABLE];
  return folder === undefined ? {} : { [VARIABLE]: folder };
}
