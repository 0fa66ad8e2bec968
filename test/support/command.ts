// The command line, run in this process as src/main.ts runs it in one of its own.
import { PassThrough, Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { runProgram } from "../../src/app/cli/program.ts";
import { type Finished, Running } from "./child-processes.ts";
import { keepOutput } from "./output-watch.ts";
import { plainEnv } from "./sealpost-process.ts";

export type CommandOptions = {
  /** Its standard input. */
  readonly input?: string | Uint8Array;
  readonly env?: Readonly<Record<string, string>>;
  /** Whether its standard output is a terminal, which shows text. */
  readonly isTerminal?: boolean;
};

/** Runs a command to completion. For what is about the process itself there is runProcess. */
export async function runSealpost(args: readonly string[], options: CommandOptions = {}): Promise<Finished> {
  return await new RunningCommand(args, options).finished;
}

/** A command that runs in this process until it is stopped. */
export class RunningCommand extends Running {
  readonly #shutdown: AbortController;

  constructor(args: readonly string[], { input = "", env = {}, isTerminal = false }: CommandOptions = {}) {
    const shutdown = new AbortController();
    const outputs = { stdout: outputOf("stdout", isTerminal), stderr: outputOf("stderr") };
    let code = 0;
    const run = async () => {
      const before = tracesHere();
      await runProgram(args, {
        env: { ...plainEnv, ...env },
        stdin: Readable.from(input.length === 0 ? [] : [Buffer.from(input)]),
        ...outputs,
        now: Date.now,
        random: Math.random,
        createShutdownSignal: () => shutdown.signal,
        sendToParent: () => undefined,
        onParentMessage: () => undefined,
        setExitCode: (given) => {
          code = given;
        },
      });
      for (const output of Object.values(outputs)) await finished(output.end());
      if (tracesHere() !== before) throw new Error(`It wants a process of its own: ${args.join(" ")}`);
      return code;
    };
    // Not before somebody listens to what it writes.
    super(outputs, Promise.resolve().then(run));
    this.#shutdown = shutdown;
  }

  /** As any signal does; resolves to the exit code. */
  async stop(_signal?: NodeJS.Signals): Promise<number | null> {
    this.#shutdown.abort();
    return (await this.finished).code;
  }
}

/** What it writes is also searched for secrets, as that of processes is. */
function outputOf(name: "stdout" | "stderr", isTTY = false) {
  const output = new PassThrough().on("data", (chunk) => keepOutput(name, String(chunk)));
  return Object.assign(output, { isTTY });
}

/** What a command could leave in the process that runs it, where the next one would find it. */
function tracesHere(): string {
  const listeners = process.eventNames().map((name) => [String(name), process.listenerCount(name)]);
  return JSON.stringify([process.exitCode, process.env, listeners.sort()]);
}
