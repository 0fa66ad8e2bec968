import { openStandardInput } from "./app/cli/options.ts";
import { runProgram } from "./app/cli/program.ts";
import { createShutdownSignal, endWithParent, onParentMessage, sendToParent } from "./app/process-context.ts";

// The reader of our output may close it early (`sealpost … | head`); that is no error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  throw error;
});

endWithParent();

await runProgram(process.argv.slice(2), {
  env: process.env,
  stdin: openStandardInput(),
  stdout: process.stdout,
  stderr: process.stderr,
  now: Date.now,
  random: Math.random,
  createShutdownSignal,
  sendToParent,
  onParentMessage,
  setExitCode: (code) => {
    process.exitCode = code;
  },
});
