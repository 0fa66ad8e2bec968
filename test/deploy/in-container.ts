// Stands in for src/main.ts: runs the command in a container of SEALPOST_IMAGE, without the rights that compose.yaml
// and the chart take away, and tells its parent what the command would have told it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { endWithParent, sendToParent } from "../../src/app/process-context.ts";
import { variables } from "../../src/base/config/variables.ts";
import { startDatabaseProxy } from "../support/database-proxy.ts";
import { RUN } from "./containers.ts";

const { env } = process;
const { SEALPOST_IMAGE = "", DATABASE_URL = "", STATE_DIR = "/var/lib/sealpost", TARGET_CA_FILE } = env;
const files = TARGET_CA_FILE === undefined ? [] : [`--volume=${TARGET_CA_FILE}:${TARGET_CA_FILE}:ro`];
const names = Object.keys(variables).filter((name) => env[name] !== undefined);

endWithParent();
// Its socket may be in a folder that the container's user must not enter.
const proxy = await startDatabaseProxy(DATABASE_URL);
const child = spawn(
  "podman",
  [
    ...[...RUN, `--tmpfs=${STATE_DIR}`, ...files, "--env=HOST=127.0.0.1"],
    ...[...names.map((name) => `--env=${name}`), SEALPOST_IMAGE, ...process.argv.slice(2)],
  ],
  { env: { ...env, DATABASE_URL: proxy.url }, stdio: ["ignore", "pipe", "inherit"] },
);
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => child.kill(signal));
createInterface({ input: child.stdout }).on("line", (line) => {
  process.stdout.write(`${line}\n`);
  const { msg, url, metrics_url: metrics } = line.startsWith("{") ? JSON.parse(line) : { msg: null };
  if (msg === "listening") sendToParent({ listening: url, metrics });
  if (msg === "dispatching") sendToParent({ ready: true, metrics });
});
const [code] = await once(child, "close");
process.exitCode = code ?? 1;
await proxy.close();
