// The programs beside Node and npm that the second tier needs. `npm test` uses none of them; `npm run test:all` starts
// with all of them only. As a program itself, it prints the Debian packages that are missing.
import { execFileSync } from "node:child_process";
import { accessSync, constants, mkdirSync, readFileSync } from "node:fs";
import { delimiter, join, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** Each with the Debian package that brings it. */
const PACKAGES = {
  bash: "bash",
  chromium: "chromium",
  curl: "curl",
  git: "git",
  go: "golang",
  gofmt: "golang",
  haproxy: "haproxy",
  java: "default-jdk-headless",
  javac: "default-jdk-headless",
  jq: "jq",
  openssl: "openssl",
  php: "php-cli",
  pip3: "python3-pip",
  prometheus: "prometheus",
  promtool: "prometheus",
  python3: "python3",
  ruby: "ruby",
  "systemd-analyze": "systemd",
  tar: "tar",
} as const;

export type Program = keyof typeof PACKAGES;

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** The path of the machine's own program. @throws Error that names its package if it is missing */
export function program(name: Program): string {
  const path = findProgram(name);
  if (path === null) throw new Error(`${name} is not installed (Debian: apt-get install ${PACKAGES[name]})`);
  return path;
}

/**
 * The path of the machine's own program of this name, or null. Skips node_modules folders: npm puts them first, and
 * the `node` in them is the one that runs the tests.
 */
export function findProgram(name: string): string | null {
  return findPrograms(name)[0] ?? null;
}

function findPrograms(name: string): readonly string[] {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders
    .filter((folder) => !folder.split(sep).includes("node_modules"))
    .map((folder) => join(folder, name))
    .filter(isExecutable);
}

/** setuptools makes wheels since 70.1, and before with a package of that name. */
const MAKES_WHEELS = `import setuptools, importlib.util
assert importlib.util.find_spec("pip")
try: import setuptools.command.bdist_wheel
except ImportError: import wheel`;

/** A Python that makes wheels without a network: a machine's first one is often bare. @throws Error if there is none */
export function wheelMakingPython(): string {
  const path = findPrograms("python3").find((python) => {
    try {
      execFileSync(python, ["-c", MAKES_WHEELS], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  });
  if (path === undefined) throw new Error("No python3 makes wheels (Debian: apt-get install python3-pip)");
  return path;
}

/**
 * A program of ours in Go, which is built anew when its source has changed. Returns its path.
 * @param source its folder in the repository
 * @throws Error where there is no Go, or it has not got the modules
 */
export function goProgram(source: string, name: string): string {
  const built = join(ROOT, ".cache", name);
  mkdirSync(join(ROOT, ".cache"), { recursive: true });
  execFileSync(program("go"), ["build", "-o", built, "."], { cwd: join(ROOT, source), stdio: "pipe" });
  return built;
}

const INSTALLED = ["versitygw", "helm", "kubeconform"] as const;

/** A program in Go that is not ours, which .ci/install-go-programs builds. @throws Error if it has not */
export function installedGoProgram(name: (typeof INSTALLED)[number]): string {
  const script = readFileSync(join(ROOT, ".ci", "install-go-programs"), "utf8");
  const [, version = ""] = new RegExp(`/${name}@(\\S+)$`, "m").exec(script) ?? [];
  const path = join(ROOT, ".cache", name, version, name);
  if (!isExecutable(path)) throw new Error(`${name} is not there (run .ci/install-go-programs)`);
  return path;
}

/** vitest global setup of the whole run. @throws Error that names all that is missing */
export function setup(): void {
  const programs = Object.keys(PACKAGES).map((name) => () => program(name as Program));
  const wanted = [...programs, wheelMakingPython, ...INSTALLED.map((name) => () => installedGoProgram(name))];
  const missing = wanted.flatMap((find) => {
    try {
      find();
      return [];
    } catch (error) {
      return [(error as Error).message];
    }
  });
  if (missing.length === 0) return;
  const lines = missing.map((message) => `  ${message}`).join("\n");
  throw new Error(
    `Not all programs of these tests are installed, and none may be left out:\n${lines}\n` +
      "`npm test` needs none of them.",
  );
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

if (import.meta.main) {
  const missing = Object.entries(PACKAGES).filter(([name]) => findProgram(name) === null);
  console.log([...new Set(missing.map(([, packageName]) => packageName))].join(" "));
}
