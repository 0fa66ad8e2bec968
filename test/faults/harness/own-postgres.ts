// A PostgreSQL server that a fault may be done to: its data is kept as in production, and it can be killed, restarted
// and frozen.
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../../src/base/embedded/embedded.ts";
import { childrenOf, signal } from "../../support/child-processes.ts";
import { makeThrowAwayFolder } from "../../support/throw-away-folder.ts";

/** fast and immediate are PostgreSQL's own words; kill is a SIGKILL of the whole server. */
export type EndOfServer = "fast" | "immediate" | "kill";

const SIGNALS = { fast: "SIGINT", immediate: "SIGQUIT", kill: "SIGKILL" } as const;

export class OwnPostgres {
  readonly #dataDir: string;
  readonly #settings: Readonly<Record<string, string>>;
  #server: EmbeddedPostgres;
  #frozen: number[] = [];
  #isRunning = true;

  private constructor(dataDir: string, settings: Readonly<Record<string, string>>, server: EmbeddedPostgres) {
    this.#dataDir = dataDir;
    this.#settings = settings;
    this.#server = server;
    this.#watch();
  }

  static async start(options: {
    readonly settings?: Readonly<Record<string, string>>;
    /** Default: a new folder, removed at the end. */
    readonly dataDir?: string;
  }): Promise<OwnPostgres> {
    const dataDir = options.dataDir ?? (await makeThrowAwayFolder());
    const settings = options.settings ?? {};
    return new OwnPostgres(dataDir, settings, await startEmbeddedPostgres({ dataDir, settings }));
  }

  /** The same before and after a restart. */
  get url(): string {
    return this.#server.databaseUrl;
  }

  async end(how: EndOfServer): Promise<void> {
    const pid = await this.#pid();
    // The sessions of a killed server would live on for as long as they have something to do.
    const sessions = how === "kill" ? childrenOf(pid) : [];
    process.kill(pid, SIGNALS[how]);
    for (const session of sessions) signal(session, "SIGKILL");
    await this.#server.ended;
  }

  async startAgain(): Promise<void> {
    await this.#server.stop();
    this.#server = await startEmbeddedPostgres({ dataDir: this.#dataDir, settings: this.#settings });
    this.#watch();
  }

  /** False: it has ended, by us or by itself. */
  get isRunning(): boolean {
    return this.#isRunning;
  }

  #watch(): void {
    this.#isRunning = true;
    void this.#server.ended.then(() => {
      this.#isRunning = false;
    });
  }

  /** It answers nothing and closes nothing, and nobody can connect. */
  async freeze(): Promise<void> {
    const pid = await this.#pid();
    process.kill(pid, "SIGSTOP");
    const children = childrenOf(pid);
    for (const child of children) signal(child, "SIGSTOP");
    this.#frozen = [...children, pid];
  }

  thaw(): void {
    for (const pid of this.#frozen.splice(0)) signal(pid, "SIGCONT");
  }

  async close(): Promise<void> {
    this.thaw();
    await this.#server.stop();
    await rm(this.#dataDir, { recursive: true, force: true });
  }

  async #pid(): Promise<number> {
    return Number.parseInt(await readFile(join(this.#dataDir, "data/postmaster.pid"), "utf8"), 10);
  }
}
