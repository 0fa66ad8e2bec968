// The service's own processes, started as an operator starts them, on the Node that runs the tests.
import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import {
  childrenOf,
  codeOf,
  type Finished,
  type LogLine,
  peakOf,
  Running,
  rssBytes,
  signal,
} from "./child-processes.ts";
import { SECRETS_KEY } from "./installation.ts";
import { OUTPUT_FOLDER_VARIABLE } from "./output-watch.ts";
import { compileCacheEnv } from "./run-folder.ts";

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

/** Only what Node needs, nothing else of the tests' environment. Several processes share this machine. */
export const plainEnv: Readonly<Record<string, string>> = {
  PATH: process.env.PATH ?? "",
  HOME: process.env.HOME ?? "",
  METRICS_PORT: "0",
};

/** Keeps a copy of the process's output, searched for secrets when all tests have ended. */
function tapped(): Record<string, string> {
  const folder = process.env[OUTPUT_FOLDER_VARIABLE];
  if (folder === undefined) return {};
  const tap = new URL("./output-tap.ts", import.meta.url).href;
  return { [OUTPUT_FOLDER_VARIABLE]: folder, NODE_OPTIONS: `--import=${tap}` };
}

export type ProcessOptions = {
  /** The command line's file, such as that of a copy of the project. */
  readonly main?: string | undefined;
  /** Flags of Node. */
  readonly nodeFlags?: readonly string[];
  /** Where its outputs go, when nobody reads them here. */
  readonly stdout?: number | "pipe";
  readonly stderr?: "pipe" | "inherit";
};

function spawnSealpost(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  { main = MAIN, nodeFlags = [], stdio }: ProcessOptions & Pick<SpawnOptions, "stdio">,
): ChildProcess {
  const all = { ...plainEnv, ...compileCacheEnv(), ...tapped(), ...env };
  return spawn(process.execPath, [...nodeFlags, main, ...args], { stdio, env: all });
}

/** Runs a command to completion. `input` is its standard input: bytes, or the descriptor of an open file. */
export async function runProcess(
  args: readonly string[],
  options: ProcessOptions & {
    readonly input?: string | Uint8Array | number;
    readonly env?: Readonly<Record<string, string>>;
  } = {},
): Promise<Finished> {
  const { input = "", env = {}, ...others } = options;
  const stdin = typeof input === "number" ? input : "pipe";
  const child = spawnSealpost(args, env, { ...others, stdio: [stdin, "pipe", "pipe"] });
  // A command that does not read its input closes it: no failure of the test's.
  child.stdin?.on("error", () => undefined);
  if (typeof input !== "number") child.stdin?.end(input);
  return await new Running(child, codeOf(child)).finished;
}

/** Of a command that runs until it is stopped. It ends with the process that has started it. */
export class SealpostProcess extends Running {
  readonly child: ChildProcess;
  /** Resolves when it has ended, however long its children live on. */
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  /** What it told its parent when it was ready: the address of an API, of the metrics. */
  readonly ready: Promise<LogLine>;
  #told: LogLine = {};

  constructor(
    command: readonly string[],
    env: Readonly<Record<string, string>>,
    options: ProcessOptions = {},
  ) {
    const { stdout = "pipe", stderr = "pipe" } = options;
    const child = spawnSealpost(command, env, { ...options, stdio: ["ignore", stdout, stderr, "ipc"] });
    super(child, codeOf(child));
    this.child = child;
    this.ended = once(child, "exit").then(([code, signal]) => ({ code, signal }));
    this.ready = Promise.race([
      once(child, "message").then(([message]) => {
        this.#told = message;
        return this.#told;
      }),
      this.finished.then(({ code }) => {
        throw new Error(
          `${command[0]} ended (${code ?? child.signalCode}) before it was ready: ${this.output()}`,
        );
      }),
    ]);
    // Whoever does not wait for it to be ready has killed it.
    this.ready.catch(() => undefined);
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error("The process could not be started.");
    return this.child.pid;
  }

  /** Where its API listens. */
  get url(): string {
    return String(this.#told.listening);
  }

  /** `http://host:port` of its metrics. */
  get metricsUrl(): string {
    return String(this.#told.metrics);
  }

  /** `host:port` of its metrics, as Prometheus takes it. */
  get metricsHost(): string {
    return new URL(this.metricsUrl).host;
  }

  get hasEnded(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  /** Asks it to end; resolves to its exit code, or null where a signal has ended it. */
  async stop(name: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
    this.child.kill(name);
    return (await this.finished).code;
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.ended;
  }

  /** With the processes that it has started, such as that of a dispatcher's steps, which would end by themselves. */
  async killAll(): Promise<void> {
    const children = this.hasEnded ? [] : childrenOf(this.pid);
    const ended = this.kill();
    for (const pid of children) signal(pid, "SIGKILL");
    await ended;
  }

  freeze(): void {
    this.child.kill("SIGSTOP");
  }

  thaw(): void {
    this.child.kill("SIGCONT");
  }

  /** Resident memory in bytes. */
  rssBytes(): Promise<number> {
    return rssBytes(this.pid);
  }

  /** The most resident memory that it had while something was done, in bytes. */
  peakRssBytes(work: () => Promise<unknown>): Promise<number> {
    return peakOf(() => this.rssBytes(), work);
  }

  async descriptorsCount(): Promise<number> {
    return (await readdir(`/proc/${this.pid}/fd`)).length;
  }

  /** The most descriptors that it had while something was done. */
  peakDescriptorsCount(work: () => Promise<unknown>): Promise<number> {
    return peakOf(() => this.descriptorsCount(), work);
  }
}

/** Runs `serve` or `dispatch`, and resolves when it is ready. `env` names its database. */
export async function startProcess(
  command: "serve" | "dispatch",
  env: Readonly<Record<string, string>>,
  options: ProcessOptions = {},
): Promise<SealpostProcess> {
  const common = { PORT: "0", SECRETS_KEY: SECRETS_KEY.toString("base64") };
  const started = new SealpostProcess([command], { ...common, ...env }, options);
  await started.ready;
  return started;
}

export type Kills = {
  readonly count: number;
  /** Resolves with those that are to be killed next, each time anew. */
  readonly start: (kill: number) => Promise<readonly SealpostProcess[]>;
  /** Resolves when it is worth it, such as in the middle of some work. False: it never will be again. */
  readonly until: (kill: number) => Promise<unknown>;
  /** What is done, or seen, while none of them lives. */
  readonly between?: (kill: number) => Promise<unknown>;
};

/** Kills them all with kill -9, again and again; resolves to how often it was done. None of them lives then. */
export async function killRepeatedly({ count, start, until, between }: Kills): Promise<number> {
  for (let kill = 0; kill < count; kill++) {
    const processes = await start(kill);
    try {
      if ((await until(kill)) === false) return kill;
    } finally {
      await Promise.all(processes.map((one) => one.killAll()));
    }
    await between?.(kill);
  }
  return count;
}
