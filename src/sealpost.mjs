#!/usr/bin/env node
// The launcher. Plain JavaScript that any Node can read: a Node that is too old cannot even parse src/main.ts, so
// the version is judged here. The project brings its own Node as a dependency, and that one is used instead.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const oldestMajor = 24;
const main = new URL("./main.ts", import.meta.url);
const ownNode = fileURLToPath(new URL("../node_modules/.bin/node", import.meta.url));

if (Number.parseInt(process.versions.node, 10) >= oldestMajor) {
  await import(main.href);
} else if (existsSync(ownNode)) {
  runOnOwnNode();
} else {
  refuse();
}

function runOnOwnNode() {
  // The channel tells the child when this process ends, even by kill -9.
  const child = spawn(ownNode, [fileURLToPath(main), ...process.argv.slice(2)], {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", refuse);
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

function refuse() {
  const found = process.versions.node;
  process.stderr.write(
    `Sealpost needs Node ${oldestMajor} or newer, and this is ${found}: run \`npm ci\`, which brings one.\n`,
  );
  process.exitCode = 2;
}
