import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { generateSource } from "oazapfts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

/** Everything that a public linter reports about an OpenAPI document, with all recommended rules on. */
export async function lintDocument(document: unknown): Promise<readonly string[]> {
  return inFolder(async (folder) => {
    const file = join(folder, "openapi.json");
    await writeFile(file, JSON.stringify(document));
    const command = [
      "node_modules/.bin/redocly",
      "lint",
      "--extends=recommended-strict",
      "--format=json",
      file,
    ];
    const offline = { REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" };
    const options = { cwd: root, env: { ...process.env, ...offline }, maxBuffer: 16 * 1024 * 1024 };
    // It exits with 1 when it finds something, and says what on standard output.
    const { stdout } = await run(process.execPath, command, options).catch((error) => error);
    const { problems } = JSON.parse(stdout) as { problems: { ruleId: string; message: string }[] };
    return problems.map(({ ruleId, message }) => `${ruleId}: ${message}`);
  });
}

/** The interface of a client generated from the document. */
export type GeneratedClient = {
  readonly defaults: { baseUrl?: string; headers?: Record<string, string>; fetch?: typeof fetch };
  readonly [operation: string]: unknown;
};

/**
 * Generates a typed client from the document, type-checks it together with `usage` (TypeScript that imports from
 * "./client.ts"), and returns both modules.
 */
export async function withGeneratedClient<T>(
  document: unknown,
  usage: string,
  use: (client: GeneratedClient, usage: Record<string, unknown>) => Promise<T>,
): Promise<T> {
  return inFolder(async (folder) => {
    const source = join(folder, "document.json");
    const files = { client: join(folder, "client.ts"), usage: join(folder, "usage.ts") };
    await writeFile(source, JSON.stringify(document));
    await writeFile(files.client, await generateSource(source));
    await writeFile(files.usage, usage);
    const flags =
      "--ignoreConfig --noEmit --strict --skipLibCheck --target es2024 --module nodenext --types node " +
      "--allowImportingTsExtensions";
    await run("node_modules/.bin/tsc", [...flags.split(" "), files.usage], { cwd: root }).catch((error) => {
      throw new Error(`The generated client does not compile:\n${error.stdout}`);
    });
    const load = (file: string) => import(/* @vite-ignore */ pathToFileURL(file).href);
    return use(await load(files.client), await load(files.usage));
  });
}

/** A temporary folder inside the repository, where modules find its packages. */
async function inFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  await mkdir(join(root, ".cache"), { recursive: true });
  const folder = await mkdtemp(join(root, ".cache", "openapi-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
