import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { type Finished, untilFinished } from "../../support/child-processes.ts";

const project = fileURLToPath(new URL("../../../", import.meta.url));
const launcher = join(project, "src", "sealpost.mjs");
const elsewhere = mkdtempSync(join(tmpdir(), "sealpost-launcher-"));
afterAll(() => rmSync(elsewhere, { recursive: true }));

/** Starts the launcher on a Node that reports another version. */
function spawnLauncher(file: string, version: string, args: string[]) {
  const versions = `{ ...process.versions, node: "${version}" }`;
  const pretend = `Object.defineProperty(process, "versions", { value: ${versions} })`;
  return spawn(process.execPath, [
    `--import=data:text/javascript,${encodeURIComponent(pretend)}`,
    file,
    ...args,
  ]);
}

function launch(file: string, version: string, args: string[], input = ""): Promise<Finished> {
  const child = spawnLauncher(file, version, args);
  child.stdin.end(input);
  return untilFinished(child);
}

describe.each(["20.19.0", "24.0.0"])("started by Node %s", (version) => {
  test("a command gets its input and returns its output and exit code", async () => {
    const good = await launch(launcher, version, ["target", "check"], '["https://example.com"]');
    expect(good).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(good.stdout)).toMatchObject([{ verdict: "allow" }]);
    const bad = await launch(launcher, version, ["target", "check"], "{}");
    expect(bad).toMatchObject({ code: 2, stdout: "" });
  });
});

describe("too old, it says so in one sentence", () => {
  const refused = {
    code: 2,
    stdout: "",
    stderr: "Sealpost needs Node 24 or newer; this is 20.19.0. Run `npm ci`, which installs one.\n",
  };
  const alone = join(elsewhere, "src", "sealpost.mjs");
  mkdirSync(join(elsewhere, "src"));
  copyFileSync(launcher, alone);

  test("without the project's own Node", async () => {
    expect(await launch(alone, "20.19.0", ["start"])).toEqual(refused);
  });

  test("with one that does not run", async () => {
    mkdirSync(join(elsewhere, "node_modules", ".bin"), { recursive: true });
    writeFileSync(join(elsewhere, "node_modules", ".bin", "node"), "");
    expect(await launch(alone, "20.19.0", ["start"])).toEqual(refused);
  });
});

describe("when a module of main.ts is not there", () => {
  async function launchLacking(folder: string) {
    const other = mkdtempSync(join(elsewhere, "lacking-"));
    mkdirSync(join(other, folder));
    mkdirSync(join(other, "src"));
    copyFileSync(launcher, join(other, "src", "sealpost.mjs"));
    writeFileSync(join(other, "src", "main.ts"), 'import "a-package-that-nobody-has";');
    return await launch(join(other, "src", "sealpost.mjs"), process.versions.node, ["start"]);
  }

  test("it says how to install the packages, if there are none", async () => {
    const stderr = "Sealpost's packages are not installed. Run `npm ci`.\n";
    expect(await launchLacking("docs")).toEqual({ code: 2, stdout: "", stderr });
  });

  test("it shows the error, if there are some", async () => {
    const { code, stderr } = await launchLacking("node_modules");
    expect(code).toBe(1);
    expect(stderr).toContain("a-package-that-nobody-has");
  });
});

test("started by npm, it ends when npm gets a SIGTERM", async () => {
  const listen = ["receiver", "listen", "--port", "0", "--secret", "whsec_test"];
  const npm = spawn("npm", ["run", "--silent", "sealpost", "--", ...listen], { cwd: project });
  await once(npm.stdout, "data");
  npm.kill("SIGTERM");
  // The command has the same output; it closes when both have ended. A shell between them would leave it running.
  await once(npm, "close");
});

describe("on a Node that is too old", () => {
  /** A project of its own, whose command line is `main`; resolves once that runs and has said so. */
  async function launchRunning(main: string) {
    const other = mkdtempSync(join(elsewhere, "project-"));
    mkdirSync(join(other, "src"));
    mkdirSync(join(other, "node_modules", ".bin"), { recursive: true });
    symlinkSync(process.execPath, join(other, "node_modules", ".bin", "node"));
    copyFileSync(launcher, join(other, "src", "sealpost.mjs"));
    writeFileSync(
      join(other, "src", "main.ts"),
      `setInterval(() => {}, 60_000); ${main}; console.log("runs");`,
    );
    const child = spawnLauncher(join(other, "src", "sealpost.mjs"), "20.19.0", []);
    await once(child.stdout, "data");
    return child;
  }

  test("a signal reaches the command, and the exit code comes back", async () => {
    const child = await launchRunning('process.on("SIGTERM", () => process.exit(7))');
    child.kill("SIGTERM");
    expect(await once(child, "exit")).toEqual([7, null]);
  });

  test("a command that dies of a signal looks like that from outside", async () => {
    const child = await launchRunning("");
    child.kill("SIGINT");
    expect(await once(child, "exit")).toEqual([null, "SIGINT"]);
  });

  test("the command learns of the launcher's end, even by kill -9", async () => {
    const child = await launchRunning('process.on("disconnect", () => process.exit(0))');
    child.kill("SIGKILL");
    // The command has the same output; it closes when both have ended.
    await once(child, "close");
  });
});
