// The package for Python as a stranger has it: a wheel made from its folder, installed into an environment of its own.
import { execFileSync, spawnSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WEBHOOK_VERIFICATION_ERROR_CODES } from "../../src/signing/index.ts";
import { namedVerdicts, packageLines, packageVerdicts } from "../recipes/trials.ts";
import { wheelMakingPython } from "../support/programs.ts";
import { patience } from "../support/time-limits.ts";
import { checkReceiver, REPOSITORY, RIGHT } from "./stranger.ts";

const folder = mkdtempSync(join(tmpdir(), "python-package-"));
const environment = join(folder, "environment");
const python = join(environment, "bin", "python");
const sources = join(REPOSITORY, "packages", "python");
const { version } = JSON.parse(readFileSync(join(REPOSITORY, "package.json"), "utf8"));
const WHEEL = `sealpost_receiver-${version}-py3-none-any.whl`;

const options = {
  cwd: folder,
  encoding: "utf8",
  env: { PATH: process.env.PATH, HOME: folder, PYTHONDONTWRITEBYTECODE: "1" },
} as const;

function run(command: string, args: readonly string[], input = ""): string {
  return execFileSync(command, args, { ...options, input });
}

beforeAll(() => {
  const maker = wheelMakingPython();
  const pip = (...args: readonly string[]) =>
    run(maker, ["-m", "pip", "--disable-pip-version-check", "--quiet", ...args]);
  const copy = join(folder, "package");
  cpSync(sources, copy, { recursive: true });
  pip("wheel", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", "wheels", copy);
  run(maker, ["-m", "venv", "--without-pip", environment]);
  pip("--python", python, "install", "--no-index", join("wheels", WHEEL));
}, patience(60_000));
afterAll(() => rmSync(folder, { recursive: true }));

test("is one wheel of the service's version, with its types and nothing that it needs", () => {
  expect(readdirSync(join(folder, "wheels"))).toEqual([WHEEL]);
  const names = run(python, ["-m", "zipfile", "--list", join("wheels", WHEEL)]).match(/^\S+\/\S+/gm) ?? [];
  const modules = names.filter((name) => name.startsWith("sealpost_receiver/"));
  expect(modules).toContain("sealpost_receiver/py.typed");
  expect(modules.length).toBe(readdirSync(join(sources, "src", "sealpost_receiver")).length);
  expect(names.filter((name) => !/^sealpost_receiver(?:-[\d.]+\.dist-info)?\//.test(name))).toEqual([]);
  const about = "from importlib.metadata import requires; print(requires('sealpost-receiver'))";
  expect(run(python, ["-c", about]).trim()).toMatch(/^(?:None|\[\])$/);
});

test("judges every vector as the library does, and answers the same challenges", () => {
  const program = join(REPOSITORY, "test", "packages", "python", "verdicts.py");
  expect(namedVerdicts(run(python, [program], `${packageLines.join("\n")}\n`))).toEqual(packageVerdicts);
});

test("passes its own tests", () => {
  const args = ["-m", "unittest", "discover", "--start-directory", join(sources, "tests")];
  // It says so on standard error, and older ones find no fault with no tests at all.
  expect(spawnSync(python, args, options).stderr).toMatch(/\nRan [1-9]\d+ tests in .*\n\nOK\n$/);
});

test("has the library's codes", () => {
  const print = "import sealpost_receiver as it; print(*it.WEBHOOK_VERIFICATION_ERROR_CODES)";
  const codes = run(python, ["-c", print]).trim().split(" ");
  expect(codes.sort()).toEqual(
    WEBHOOK_VERIFICATION_ERROR_CODES.filter((code) => code !== "web_crypto_missing").sort(),
  );
});

test("does what its README begins with", () => {
  const readme = readFileSync(join(sources, "README.md"), "utf8");
  expect(readme).toContain(`pip install ./${WHEEL} `);
  const [, shown = ""] = /```python\n(.*?)```/s.exec(readme) ?? [];
  const body = '{"id":"d","event":"analysis.failed","created_at":"x","data":{"id":"a","status":"failed"}}';
  const seconds = Math.floor(Date.now() / 1_000);
  const mac = createHmac("sha256", "whsec_x").update(`${seconds}.${body}`).digest("hex");
  const given = `body, header, secret = rb'''${body}''', "t=${seconds},v1=${mac}", "whsec_x"`;
  expect(run(python, ["-"], `${given}\n${shown}\nprint(event["id"])\n`)).toBe("d\n");
});

const server = join(REPOSITORY, "test", "packages", "python", "serve.py");
const examples = join(sources, "examples");

test.each([
  ["the guide's program", () => [join(REPOSITORY, "test", "recipes", "python", "receiver.py")]],
  ["the README's WSGI application", (port: number) => [server, "wsgi", examples, String(port)]],
  ["the README's ASGI application", (port: number) => [server, "asgi", examples, String(port)]],
] as const)(
  "%s is right, as the receiver check sees it",
  { timeout: patience(60_000) },
  async (_, argsAt) => {
    const report = await checkReceiver(python, (port) => ["-B", ...argsAt(port)]);
    expect(report).toMatchObject(RIGHT);
  },
);
