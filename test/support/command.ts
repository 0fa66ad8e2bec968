import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { compileCacheEnv } from "./compile-cache.ts";
import { OUTPUT_FOLDER_VARIABLE } from "./output-watch.ts";

export type Finished = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

const projectRoot = fileURLToPath(new URL("../..", import.meta.url));

/** Only what Node needs, nothing else of the tests' environment. Several processes share this machine. */
const plainEnv = {
  PATH: process.env.PATH,
  HOME: process.env.HOME,
  METRICS_PORT: "0",
  ...compileCacheEnv(),
  ...tapped(),
};

/** Keeps a copy of the process's output, searched for secrets when all tests have ended. */
function tapped(): Record<string, string> {
  const folder = process.env[OUTPUT_FOLDER_VARIABLE];
  if (folder === undefined) return {};
  const tap = new URL("./output-tap.mjs", import.meta.url).href;
  return { [OUTPUT_FOLDER_VARIABLE]: folder, NODE_OPTIONS: `--import=${tap}` };
}

/** Starts the real command line in its own process, on the Node that runs the tests. `root`: a copy of the project. */
export function startSealpost(
  args: readonly string[],
  options: Pick<SpawnOptions, "cwd" | "stdio"> & {
    readonly env?: Record<string, string>;
    readonly root?: string;
  } = {},
): ChildProcess {
  const { root = projectRoot, env, ...others } = options;
  const main = join(root, "src/main.ts");
  return spawn(process.execPath, [main, ...args], { ...others, env: { ...plainEnv, ...env } });
}

/** Runs it to completion. `input` is its standard input: bytes, or the descriptor of an open file. */
export async function runSealpost(
  args: readonly string[],
  options: {
    readonly input?: string | Uint8Array | number;
    readonly env?: Record<string, string>;
    readonly root?: string;
  } = {},
): Promise<Finished> {
  const { input = "", env = {}, root = projectRoot } = options;
  const stdin = typeof input === "number" ? input : "pipe";
  const child = startSealpost(args, { stdio: [stdin, "pipe", "pipe"], env, root });
  // A command that does not read its input closes it: no failure of the test's.
  child.stdin?.on("error", () => undefined);
  if (typeof input !== "number") child.stdin?.end(input);
  return untilFinished(child);
}

/** Collects a process's output until it has exited and its output is closed. */
export async function untilFinished(child: ChildProcess): Promise<Finished> {
  const texts = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (text: string) => {
      texts[name] += text;
    });
  }
  const [code] = await once(child, "close");
  return { code, ...texts };
}
