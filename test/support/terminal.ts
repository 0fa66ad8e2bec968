import { PassThrough } from "node:stream";
import { runProgram } from "../../src/cli/program.ts";

/** Runs a command line in this process, as if at a terminal. */
export async function runAtTerminal(
  args: readonly string[],
  input: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ readonly text: string; readonly code: number }> {
  const stdin = new PassThrough();
  const stdout = Object.assign(new PassThrough(), { isTTY: true });
  let code = 0;
  stdin.end(input);
  await runProgram(args, {
    env,
    stdin,
    stdout,
    stderr: stdout,
    now: () => 0,
    random: () => 0.5,
    createShutdownSignal: () => new AbortController().signal,
    sendToParent: () => undefined,
    onParentMessage: () => undefined,
    setExitCode: (given) => {
      code = given;
    },
  });
  return { text: String(stdout.read() ?? ""), code };
}
