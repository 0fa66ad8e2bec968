// One of the service's own processes, started as an operator starts it.
import { type ChildProcess, fork } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { compileCacheEnv } from "../../support/compile-cache.ts";
import { patience, patientSignal } from "../../support/time-limits.ts";

const MAIN = fileURLToPath(new URL("../../../src/main.ts", import.meta.url));
const WATCH_EVERY_MS = 25;
const KEPT_LINES = 2_000;

export type Ended = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type LogLine = Readonly<Record<string, unknown>>;

export class SealpostProcess {
  readonly #child: ChildProcess;
  readonly #events = new EventEmitter();
  readonly #errors: string[] = [];
  /** The newest lines of its log. */
  readonly lines: LogLine[] = [];
  readonly ended: Promise<Ended>;
  /** What it told its parent when it was ready: the address of an API, of the metrics. */
  readonly ready: Promise<LogLine>;

  /** `command` as on the command line; `imports`: modules that Node loads before the service; `main`: whose. */
  constructor(
    command: readonly string[],
    env: Readonly<Record<string, string>>,
    imports: readonly string[] = [],
    main: string = MAIN,
  ) {
    this.#child = fork(main, command, {
      env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "", ...compileCacheEnv(), ...env },
      execArgv: imports.flatMap((url) => ["--import", url]),
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    this.ended = once(this.#child, "exit").then(([code, signal]) => ({ code, signal }));
    this.ready = Promise.race([
      once(this.#child, "message").then(([message]) => message as LogLine),
      this.ended.then(({ code, signal }) => {
        throw new Error(`${command[0]} ended (${code ?? signal}) before it was ready: ${this.errors}`);
      }),
    ]);
    // Whoever does not wait for it to be ready has killed it.
    this.ready.catch(() => undefined);
    createInterface(this.#child.stdout!).on("line", (line) => this.#keep(line));
    createInterface(this.#child.stderr!).on("line", (line) => this.#errors.push(line));
  }

  get pid(): number {
    return this.#child.pid!;
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** What it wrote on standard error: nothing, as long as all is well. */
  get errors(): string {
    return this.#errors.join("\n");
  }

  /** Resolves with a line of the log that is wanted, once there is one. */
  waitForLine(isWanted: (line: LogLine) => boolean, timeoutMs = 60_000): Promise<LogLine> {
    return new Promise((resolve, reject) => {
      const end = (settle: () => void) => {
        signal.removeEventListener("abort", giveUp);
        this.#events.off("line", hear);
        settle();
      };
      const hear = (line: LogLine) => isWanted(line) && end(() => resolve(line));
      const giveUp = () =>
        end(() => reject(new Error(`no such line in ${patience(timeoutMs)} ms: ${isWanted}`)));
      const signal = patientSignal(timeoutMs);
      signal.addEventListener("abort", giveUp);
      this.#events.on("line", hear);
      this.lines.forEach(hear);
    });
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.ended;
  }

  freeze(): void {
    this.#child.kill("SIGSTOP");
  }

  thaw(): void {
    this.#child.kill("SIGCONT");
  }

  /** Asks it to end, and says how it did and how long it took. */
  async stop(): Promise<Ended & { readonly tookMs: number }> {
    const askedAt = performance.now();
    this.#child.kill("SIGTERM");
    return { ...(await this.ended), tookMs: performance.now() - askedAt };
  }

  /** Resident memory in bytes. */
  async rssBytes(): Promise<number> {
    const status = await readFile(`/proc/${this.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
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

  #keep(line: string): void {
    let parsed: LogLine;
    try {
      parsed = JSON.parse(line);
    } catch {
      parsed = { msg: line };
    }
    this.lines.push(parsed);
    if (this.lines.length > KEPT_LINES) this.lines.shift();
    this.#events.emit("line", parsed);
  }
}

async function peakOf(read: () => Promise<number>, work: () => Promise<unknown>): Promise<number> {
  let peak = await read();
  const watching = setInterval(async () => {
    // A process that has just ended has nothing any more.
    peak = Math.max(peak, await read().catch(() => 0));
  }, WATCH_EVERY_MS);
  await work().finally(() => clearInterval(watching));
  return peak;
}
