// On which of the machine's cores a process runs. Linux's taskset; children inherit it.
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Whatever `start` starts runs on these cores alone, and so does all that it starts itself. One call at a time: until
 * it is over, this process is bound to them, too.
 */
export async function startOn<Result>(
  cores: readonly number[],
  start: () => Promise<Result>,
): Promise<Result> {
  // Of the main thread alone, which is the one that starts processes.
  const pid = String(process.pid);
  const before = await run("taskset", ["-c", "-p", pid]);
  const [, free = ""] = /list: (\S+)/.exec(before.stdout) ?? [];
  await run("taskset", ["-c", "-p", cores.join(","), pid]);
  try {
    return await start();
  } finally {
    await run("taskset", ["-c", "-p", free, pid]);
  }
}
