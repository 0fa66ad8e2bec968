import { endWithParent, tellParent, untilAskedToEnd } from "./app/parent.ts";
import { runProgram } from "./cli/program.ts";
import { openStandardInput } from "./cli/standard-input.ts";

// Whoever reads our output may stop reading (`sealpost … | head`); that is no failure of ours.
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
  untilAskedToEnd,
  tellParent,
  setExitCode: (code) => {
    process.exitCode = code;
  },
});
