// What runs beside a test and writes lines, and what the system tells of processes (Linux only).
import type { ChildProcess } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { patience, patientSignal } from "./time-limits.ts";

const WATCH_EVERY_MS = 25;
/** Of what it says, so that what is played for hours does not fill the memory: the newest. */
const LINES_KEPT = 50_000;
const CHARACTERS_KEPT = 50_000_000;

export type Finished = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

export type LogLine = Readonly<Record<string, unknown>>;

/** A warning, or worse, but for the announcement of unsafe settings. Version 1.0.0 wrote pino's numbers. */
export function isComplaint({ level, msg }: LogLine): boolean {
  const isOne = ["warn", "error", "fatal"].includes(String(level)) || Number(level) >= 40;
  return isOne && !String(msg).startsWith("UNSAFE");
}

/** Something that runs, in this process or in one of its own: what it writes, and how it ends. */
export class Running {
  readonly #events = new EventEmitter();
  readonly #texts = { stdout: "", stderr: "" };
  readonly #lines: { readonly name: string; readonly text: string; readonly line: LogLine }[] = [];
  #dropped = 0;
  #taken = 0;
  /** Resolves when it has ended and its outputs are closed, which its children may hold open. */
  readonly finished: Promise<Finished>;

  constructor(outputs: Record<"stdout" | "stderr", Readable | null>, closed: Promise<number | null>) {
    for (const name of ["stdout", "stderr"] as const) {
      const output = outputs[name]?.setEncoding("utf8");
      if (output === undefined) continue;
      output.on("data", (text: string) => {
        this.#texts[name] = (this.#texts[name] + text).slice(-CHARACTERS_KEPT);
      });
      createInterface({ input: output }).on("line", (text) => {
        this.#lines.push({ name, text, line: parsed(text) });
        if (this.#lines.length > LINES_KEPT) this.#dropped += this.#lines.splice(0, LINES_KEPT / 2).length;
        this.#events.emit("line");
      });
    }
    this.finished = closed.then((code) => ({ code, ...this.#texts }));
  }

  /** Standard output, line by line, parsed; what is no JSON is in `msg`. */
  get lines(): readonly LogLine[] {
    return this.#lines.filter(({ name }) => name === "stdout").map(({ line }) => line);
  }

  /** Standard error. */
  get errors(): string {
    return this.#texts.stderr;
  }

  /** The lines of both outputs, in the order in which they came. */
  get texts(): readonly string[] {
    return this.#lines.map(({ text }) => text);
  }

  output(): string {
    return this.texts.map((text) => `${text}\n`).join("");
  }

  /** The next line of standard output that nobody has taken in this way. */
  async nextLine(): Promise<string> {
    const number = this.#taken++;
    const ofStdout = () => this.#lines.filter(({ name }) => name === "stdout");
    await this.#untilHeard(() => ofStdout()[number] !== undefined, `a line ${number + 1}`);
    return ofStdout()[number]!.text;
  }

  /** Resolves with a line of either output that is wanted, once there is one. */
  async waitForLine(isWanted: (line: LogLine) => boolean, timeoutMs = 60_000): Promise<LogLine> {
    let looked = 0;
    let found: LogLine | undefined;
    const isThere = () => {
      found = this.#lines.slice(Math.max(0, looked - this.#dropped)).find(({ line }) => isWanted(line))?.line;
      looked = this.#lines.length + this.#dropped;
      return found !== undefined;
    };
    await this.#untilHeard(isThere, String(isWanted), timeoutMs);
    return found!;
  }

  async #untilHeard(isThere: () => boolean, what: string, timeoutMs = 60_000): Promise<void> {
    const over = new AbortController();
    const late = patientSignal(timeoutMs);
    const end = () => over.abort();
    void this.finished.then(end, end);
    const signal = AbortSignal.any([late, over.signal]);
    while (!isThere()) {
      if (signal.aborted) {
        const why = over.signal.aborted ? "before it ended" : `in ${patience(timeoutMs)} ms`;
        throw new Error(`It did not say ${what} ${why}, but:\n${this.output()}`);
      }
      await once(this.#events, "line", { signal }).catch(() => undefined);
    }
  }
}

function parsed(line: string): LogLine {
  try {
    return JSON.parse(line);
  } catch {
    return { msg: line };
  }
}

/** Collects a process's output until it has exited and its output is closed. */
export function untilFinished(child: ChildProcess): Promise<Finished> {
  return new Running(child, codeOf(child)).finished;
}

/** Its exit code, once its output is closed, too; null: a signal ended it. */
export async function codeOf(child: ChildProcess): Promise<number | null> {
  const [code] = await once(child, "close");
  return code as number | null;
}

/** Processes that this one has started and that still run. Without waiting: who kills it next must not be late. */
export function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
    return text.split(" ").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

/** False: it had ended by itself. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}

/** Resident memory in bytes. */
export async function rssBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
}

/** The most that was read while something was done. */
export async function peakOf(read: () => Promise<number>, work: () => Promise<unknown>): Promise<number> {
  let peak = await read();
  const watching = setInterval(async () => {
    // A process that has just ended has nothing any more.
    peak = Math.max(peak, await read().catch(() => 0));
  }, WATCH_EVERY_MS);
  await work().finally(() => clearInterval(watching));
  return peak;
}
