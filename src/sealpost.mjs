#!/usr/bin/env node
// The launcher, in plain JavaScript: a Node that is too old cannot even parse src/main.ts, so the version is checked
// here. For an old one, the project has a newer Node among its dependencies, and runs on that.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import * as module from "node:module";
import { fileURLToPath } from "node:url";

const MAJOR_MIN = 24;
const main = new URL("./main.ts", import.meta.url);
const packages = new URL("../node_modules", import.meta.url);
const ownNode = fileURLToPath(new URL("../node_modules/.bin/node", import.meta.url));

// Node's compile cache: it starts in half the time, and without loading its type stripper, whose memory would stay.
// Processes that are started from here have it, too. Where the folder cannot be written, nothing is cached.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL("../.cache/compiled", import.meta.url));

if (Number.parseInt(process.versions.node, 10) >= MAJOR_MIN) {
  module.enableCompileCache();
  await import(main.href).catch(failUninstalled);
} else if (existsSync(ownNode)) {
  runOnOwnNode();
} else {
  failTooOld();
}

function runOnOwnNode() {
  // The channel tells the child when this process ends, even by SIGKILL.
  const child = spawn(ownNode, [fileURLToPath(main), ...process.argv.slice(2)], {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", failTooOld);
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

function failUninstalled(error) {
  if (error.code !== "ERR_MODULE_NOT_FOUND" || existsSync(packages)) throw error;
  fail("Sealpost's packages are not installed. Run `npm ci`.");
}

function failTooOld() {
  const found = process.versions.node;
  fail(`Sealpost needs Node ${MAJOR_MIN} or newer; this is ${found}. Run \`npm ci\`, which installs one.`);
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exitCode = 2;
}
