// Clients as others make them from the OpenAPI document: generated, compiled strictly, and used for two calls. A folder
// for each language has the versions of what generates its client, and the program that calls.
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cpSync, existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { publish } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import { program } from "../support/programs.ts";
import { patience } from "../support/time-limits.ts";

const FOLDERS = fileURLToPath(new URL("./", import.meta.url));
const INSTALLED = fileURLToPath(new URL("../../.cache/clients/", import.meta.url));

const { database, api } = await openApi();

type Place = {
  /** What .ci/install-client-generators has installed for the language. */
  readonly tools: string;
  /** A copy of the language's folder, with `openapi.json`. */
  readonly folder: string;
  /** Runs a program there, and returns its output. @throws Error with its output if it fails */
  readonly run: (command: string, args: readonly string[], env?: Record<string, string>) => Promise<string>;
};

type Language = {
  /** The file with the versions. */
  readonly versions: string;
  /** Makes the client, and returns what the program that calls says. @param args of that program */
  readonly call: (place: Place, args: readonly string[]) => Promise<string>;
};

const LANGUAGES: Readonly<Record<string, Language>> = {
  python: {
    versions: "requirements.txt",
    call: async ({ tools, run }, args) => {
      const bin = join(tools, "bin");
      const options = "generate --path openapi.json --output-path client --meta none --fail-on-warning";
      // It formats what it has written with a program beside it.
      const env = { PATH: `${bin}${delimiter}${process.env.PATH}` };
      await run(join(bin, "openapi-python-client"), options.split(" "), env);
      return await run(join(bin, "python"), ["call.py", ...args]);
    },
  },
  go: {
    versions: "go.mod",
    call: async ({ tools, run }, args) => {
      const options = "-generate types,client -package main -o client.go openapi.json";
      await run(join(tools, "oapi-codegen"), options.split(" "));
      return await run(join(tools, "go"), ["run", ".", ...args], { GOPROXY: "off" });
    },
  },
  typescript: {
    versions: "package-lock.json",
    call: async ({ tools, run }, args) => {
      const bin = (name: string) => join(tools, "node_modules", ".bin", name);
      await run(bin("openapi-typescript"), ["openapi.json", "--output", "client.ts"]);
      const flags =
        "--noEmit --strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess --target es2024 " +
        "--module nodenext --types node --allowImportingTsExtensions";
      await run(bin("tsc"), [...flags.split(" "), "call.ts"]);
      return await run(process.execPath, ["call.ts", ...args]);
    },
  },
  java: {
    versions: "pom.xml",
    call: async ({ tools, folder, run }, args) => {
      const archives = globSync(join(tools, "*.jar"));
      const isGenerator = (path: string) => path.includes("openapi-generator-cli");
      const options =
        "generate -g java -i openapi.json -o made --invoker-package client " +
        "--api-package client.api --model-package client.model " +
        "--additional-properties useSingleRequestParameter=true " +
        "--global-property apiTests=false,modelTests=false,apiDocs=false,modelDocs=false";
      await run(program("java"), ["-jar", archives.find(isGenerator)!, ...options.split(" ")]);
      const classPath = ["classes", ...archives.filter((path) => !isGenerator(path))].join(delimiter);
      const sources = globSync("{call,made/src/main/java/**/*}.java", { cwd: folder });
      await run(program("javac"), [
        "-J-XX:TieredStopAtLevel=1",
        "-proc:none",
        "-nowarn",
        "-d",
        "classes",
        "-cp",
        classPath,
        ...sources,
      ]);
      return await run(program("java"), ["-cp", classPath, "Call", ...args]);
    },
  },
};

test.for(Object.keys(LANGUAGES))(
  "a client generated in %s compiles, reads a list, and is told why it is refused",
  { timeout: patience(120_000) },
  async (name, { skip }) => {
    const { versions, call } = LANGUAGES[name]!;
    const own = join(FOLDERS, name);
    const tools = join(INSTALLED, name);
    skip(
      !isSame(join(own, versions), join(tools, "finished")),
      `what generates clients in ${name} is not there: run .ci/install-client-generators ${name}`,
    );
    const account = await api.newAccount();
    await publish(database.pool, account.accountId, `{"id":"in-${name}","status":"succeeded"}`);
    const folder = mkdtempSync(join(tools, "made-"));
    try {
      cpSync(own, folder, { recursive: true });
      const document = await fetch(`${api.url}/v1/openapi.json`);
      writeFileSync(join(folder, "openapi.json"), await document.text());
      const told = await call({ tools, folder, run: runIn(folder) }, [
        `${api.url}/v1`,
        account.ownKey,
        randomUUID(),
      ]);
      expect(JSON.parse(told)).toEqual([1, `in-${name}`, "abandoned", 404, "not_found"]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
);

function isSame(path: string, other: string): boolean {
  return existsSync(other) && readFileSync(path, "utf8") === readFileSync(other, "utf8");
}

const execute = promisify(execFile);

function runIn(folder: string): Place["run"] {
  return async (command, args, env = {}) => {
    const options = { cwd: folder, env: { ...process.env, ...env }, maxBuffer: 64 * 1_024 ** 2 };
    const { stdout } = await execute(command, args, options).catch((error) => {
      throw new Error(`${command} has failed:\n${error.stdout}\n${error.stderr}`.slice(0, 10_000));
    });
    return stdout;
  };
}
