// The benchmark's side: starts a process of its own and asks it questions.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

export type AskedProcess = {
  readonly pid: number;
  ask<Answer>(name: string, input?: unknown): Promise<Answer>;
  stop(): Promise<void>;
};

type Answered = { readonly number: number; readonly answer?: unknown; readonly failure?: string };

/** Nothing of our own environment but what Node itself needs to run. */
const plainEnv = { PATH: process.env.PATH, HOME: process.env.HOME };

/** Starts one of the files of this folder. `input` reaches it as JSON in BENCH_INPUT. */
export function startAsked(
  file:
    | "bare-fastify-process.ts"
    | "hashing-process.ts"
    | "limit-process.ts"
    | "publisher-process.ts"
    | "receiver-process.ts",
  input: unknown,
  execArgv: readonly string[] = [],
): AskedProcess {
  const child = fork(fileURLToPath(new URL(file, import.meta.url)), [], {
    env: { ...plainEnv, BENCH_INPUT: JSON.stringify(input) },
    execArgv: [...execArgv],
    serialization: "advanced",
  });
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  let asked = 0;
  let isStopping = false;
  child.on("message", ({ number, answer, failure }: Answered) => {
    const question = waiting.get(number);
    waiting.delete(number);
    if (failure === undefined) question?.resolve(answer);
    else question?.reject(new Error(`${file}: ${failure}`));
  });
  child.once("exit", (code, signal) => {
    if (isStopping) return;
    for (const question of waiting.values()) {
      question.reject(new Error(`${file} has ended by itself (${signal ?? `code ${code}`}).`));
    }
  });
  return {
    pid: pidOf(child),
    ask: <Answer>(name: string, given: unknown = null) => {
      const question = Promise.withResolvers<unknown>();
      asked += 1;
      waiting.set(asked, question);
      child.send({ number: asked, name, input: given });
      return question.promise as Promise<Answer>;
    },
    stop: async () => {
      isStopping = true;
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.disconnect();
      await exited;
    },
  };
}

export function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error("A process of the benchmark could not be started.");
  return child.pid;
}
