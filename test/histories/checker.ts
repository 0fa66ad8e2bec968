// Histories, and the stranger's checker that judges them: Porcupine, with the models of checker/models.go.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { goProgram } from "../support/programs.ts";

export const MODELS = ["idempotency", "analysis", "draft", "pause", "feed", "cell"] as const;
export type Model = (typeof MODELS)[number];

/** What a client asked for. */
export type Call = { readonly do: string; readonly value?: string; readonly at?: number };

/** What it was told; what the members stand for is the model's to say. */
export type Answer = {
  readonly is: string;
  readonly value?: string;
  readonly at?: number;
  readonly version?: number;
  readonly published?: string;
  readonly replayed?: boolean;
  readonly isEnd?: boolean;
  readonly items?: readonly string[];
};

/** Times in nanoseconds of the machine's monotonic clock. `out` null: nobody knows whether it took place. */
export type Operation = {
  readonly client: number;
  readonly call: number;
  readonly return: number;
  readonly in: Call;
  readonly out: Answer | null;
};

/** What clients saw of one key, one account or one workflow. */
export type History = {
  readonly model: Model;
  readonly name: string;
  readonly operations: readonly Operation[];
};

export type Refusal = {
  readonly name: string;
  readonly model: Model;
  /** Illegal; Unknown: not decided in time. */
  readonly verdict: "Illegal" | "Unknown";
  readonly history: History;
};

const checkerProgram = () => goProgram("test/histories/checker", "histories-checker");

/** Why there is none; null: there is one. */
export function missingChecker(): string | null {
  try {
    checkerProgram();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

export class Checker {
  readonly refusals: Refusal[] = [];
  readonly #process: ChildProcess;
  readonly #ended: Promise<unknown>;
  #given = 0;
  #judged = 0;

  /** @param pictures a folder in which refused histories are drawn; null: they are not */
  constructor(pictures: string | null = null) {
    const args = pictures === null ? [] : ["-pictures", pictures];
    this.#process = spawn(checkerProgram(), args, { stdio: ["pipe", "pipe", "inherit"] });
    this.#ended = once(this.#process, "exit");
    createInterface({ input: this.#process.stdout! }).on("line", (line) => {
      const told = JSON.parse(line) as Refusal | { readonly judged: number };
      if ("judged" in told) this.#judged = told.judged;
      else this.refusals.push(told);
    });
  }

  judge(history: History): void {
    this.#given++;
    this.#process.stdin!.write(`${JSON.stringify(history)}\n`);
  }

  /** Resolves to what it refused. @throws Error if it has not judged everything */
  async end(): Promise<readonly Refusal[]> {
    const closed = once(this.#process.stdout!, "close");
    this.#process.stdin!.end();
    await Promise.all([this.#ended, closed]);
    if (this.#judged !== this.#given) throw new Error(`${this.#judged} of ${this.#given} were judged`);
    return this.refusals;
  }
}
