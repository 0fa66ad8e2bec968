// A file system that keeps what was not synced in memory, and drops it when the power is cut: lazyfs/main.go.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { goProgram } from "../support/programs.ts";

export class LazyFs {
  readonly folder: string;
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  private constructor(folder: string, process: ChildProcess) {
    this.folder = folder;
    this.#process = process;
    this.#lines = createInterface({ input: process.stdout! })[Symbol.asyncIterator]();
  }

  /** @throws Error where none can be mounted, with what the machine says */
  static async mount(): Promise<LazyFs> {
    const built = goProgram("test/power-loss/lazyfs", "lazyfs");
    // A short path: a socket is in it.
    const folder = await mkdtemp(join(tmpdir(), "lazy-"));
    const process = spawn(built, [folder], { stdio: ["pipe", "pipe", "inherit"] });
    const mounted = new LazyFs(folder, process);
    await mounted.#read("mounted");
    return mounted;
  }

  /**
   * Whoever uses it must be dead. `seed` null: nothing survives that was not synced; else some pages of it do. Returns
   * how many files are not as they were.
   */
  async cut(seed: number | null): Promise<number> {
    this.#process.stdin!.write(seed === null ? "cut\n" : `cut torn ${seed}\n`);
    const lost = Number((await this.#read("lost")).split(" ")[1]);
    await this.#read("mounted");
    return lost;
  }

  async end(): Promise<void> {
    if (this.#process.exitCode === null) {
      const ended = once(this.#process, "exit");
      this.#process.stdin!.write("end\n");
      await ended;
    }
    await rm(this.folder, { recursive: true, force: true });
  }

  async #read(expected: string): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done === true || !value.startsWith(expected)) throw new Error(`lazyfs ended, or said: ${value}`);
    return value;
  }
}
