// npm run mutants [-- --mutate FILE] [-- --force]: changes the code that decides, one small thing at a time, and tells
// which changes no test notices. README.md beside this says more.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { startTestServer } from "../support/test-server.ts";

const stryker = fileURLToPath(new URL("../../node_modules/.bin/stryker", import.meta.url));
const config = fileURLToPath(new URL("stryker.config.json", import.meta.url));

// Ctrl+C reaches both; Stryker ends, and then this does.
process.on("SIGINT", () => undefined);
// One server for all runs: Stryker kills a run that takes too long, and what that had started would stay.
const server = await startTestServer();
try {
  const run = spawn(stryker, ["run", config, ...process.argv.slice(2)], {
    stdio: "inherit",
    // A worker thread cannot change its time zone, as a test does: all have that one.
    env: { ...process.env, TEST_DATABASE_URL: server.url("postgres"), TZ: "America/New_York" },
  });
  const [code] = await once(run, "exit");
  process.exitCode = code ?? 1;
} finally {
  await server.stop();
}
