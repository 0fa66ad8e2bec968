// vitest global setup: the processes of a run share what Node compiles, which nearly halves what starting one costs.
// Each run has a folder of its own: tests start copies of the project too, by which a kept one would grow.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Node's own. */
const VARIABLE = "NODE_COMPILE_CACHE";

/** Where the variable is set already, that folder is used, and stays. */
export function setup(): (() => void) | undefined {
  if (process.env[VARIABLE] !== undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "sealpost-compiled-"));
  process.env[VARIABLE] = folder;
  return () => rmSync(folder, { recursive: true, maxRetries: 3 });
}

/** For processes whose environment is otherwise their own; empty where the setup has not run. */
export function compileCacheEnv(): Readonly<Record<string, string>> {
  const folder = process.env[VARIABLE];
  return folder === undefined ? {} : { [VARIABLE]: folder };
}
