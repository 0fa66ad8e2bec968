// vitest global setup: a folder of this run's. What Node compiles is shared in it, which nearly halves what starting a
// process costs; a kept one would grow, since tests start copies of the project too.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    /** Removed when the run ends; for files that outlive a test. */
    runFolder: string;
  }
}

/** Node's own. */
const VARIABLE = "NODE_COMPILE_CACHE";

/** Where the variable is set already, that folder is used, and stays. */
export function setup(project: TestProject): void {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-run-"));
  project.provide("runFolder", folder);
  process.env[VARIABLE] ??= join(folder, "compiled");
  // Not earlier: processes that end write what they have compiled.
  process.on("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
}

/** For processes whose environment is otherwise their own; empty where the setup has not run. */
export function compileCacheEnv(): Readonly<Record<string, string>> {
  const folder = process.env[VARIABLE];
  return folder === undefined ? {} : { [VARIABLE]: folder };
}
