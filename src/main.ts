import { runProgram } from "./cli/program.ts";
import { openStandardInput } from "./cli/standard-input.ts";

// Whoever reads our output may stop reading (`sealpost … | head`); that is no failure of ours.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  throw error;
});

// Started by the launcher or a supervisor: when that one ends, however it ends, so do we.
process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
process.channel?.unref();

function untilAskedToEnd(): AbortSignal {
  const controller = new AbortController();
  // A terminal and npm may each send the signal: a second one is no wish to end sooner.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => controller.abort());
  }
  return controller.signal;
}

await runProgram(process.argv.slice(2), {
  env: process.env,
  stdin: openStandardInput(),
  stdout: process.stdout,
  stderr: process.stderr,
  now: Date.now,
  random: Math.random,
  untilAskedToEnd,
  tellSupervisor: (message) => process.send?.(message),
  setExitCode: (code) => {
    process.exitCode = code;
  },
});
