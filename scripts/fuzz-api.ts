// Fuzzes the API with schemathesis, from the OpenAPI document. It needs Python, so it is not part of the tests and gets
// its own virtual environment in .cache/.
//
//   npm run fuzz:api                       a few minutes
//   npm run fuzz:api -- --max-examples 20  less; arguments are passed to schemathesis
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const SCHEMATHESIS = "schemathesis==4.32.5";
const root = fileURLToPath(new URL("..", import.meta.url));
const environment = join(root, ".cache", "fuzz-api");

/** Replaces valid Idempotency-Keys with random ones: generated from the document, most would repeat. */
const hooks = `
import re, uuid, schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and re.fullmatch(r'[!#-~]([ -~]{0,198}[!-~])?', key):
        case.headers["Idempotency-Key"] = str(uuid.uuid4())
`;

type Running = { readonly url: string; readonly key: string; stop(): Promise<void> };

const folder = await mkdtemp(join(tmpdir(), "sealpost-fuzz-"));
try {
  const fuzzer = installFuzzer();
  const running = await startSealpost(folder);
  try {
    await seed(running);
    const document = join(folder, "openapi.json");
    await writeFile(document, JSON.stringify(await documentOf(running)));
    process.exitCode = await fuzz(fuzzer, document, running);
  } finally {
    await running.stop();
  }
} finally {
  await rm(folder, { recursive: true });
}

function installFuzzer(): string {
  const fuzzer = join(environment, "bin", "schemathesis");
  if (!existsSync(fuzzer)) {
    execFileSync("python3", ["-m", "venv", environment], { stdio: "inherit" });
    const pip = join(environment, "bin", "pip");
    execFileSync(pip, ["install", "--quiet", SCHEMATHESIS], { stdio: "inherit" });
  }
  return fuzzer;
}

/** The complete service on its own database, with an account and its key. */
async function startSealpost(stateDir: string): Promise<Running> {
  const env = {
    ...process.env,
    DATABASE_URL: "",
    STATE_DIR: stateDir,
    PORT: "0",
    METRICS_PORT: "0",
    LOG_LEVEL: "error",
    RATE_LIMIT_REQUESTS: "1000000",
  };
  const main = join(root, "src", "main.ts");
  const child = spawn(process.execPath, [main, "start", "--json"], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const closed = once(child, "close");
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await closed;
  };
  let key = "";
  for await (const line of createInterface(child.stdout)) {
    const { event, name, url, api_key } = JSON.parse(line) as Record<string, string>;
    if (event === "first_account") key = api_key ?? "";
    if (event !== "running" || name !== "API") continue;
    // Internal errors are logged there.
    child.stdout.pipe(process.stderr);
    return { url: url ?? "", key, stop };
  }
  throw new Error("The service exited before it was ready.");
}

/** Test data: without a target every delivery is abandoned at once and can be replayed. */
async function seed({ url, key }: Running): Promise<void> {
  for (let n = 0; n < 50; n++) {
    const analysis = { id: `seed-${n}`, status: n % 2 === 0 ? "succeeded" : "failed" };
    await fetch(`${url}/v1/analyses`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        "idempotency-key": randomUUID(),
      },
      body: JSON.stringify({ analysis }),
    });
  }
}

type Document = {
  readonly components: { readonly parameters: Record<string, unknown> };
  readonly paths: Paths;
};
type Paths = Record<string, Record<string, { parameters: { readonly $ref?: string }[] }>>;

/** Without X-Account-Id, which is for staff keys: with a tenant's key, other accounts are refused. */
async function documentOf({ url }: Running): Promise<Document> {
  const document = (await (await fetch(`${url}/v1/openapi.json`)).json()) as Document;
  for (const operation of Object.values(document.paths).flatMap((methods) => Object.values(methods))) {
    operation.parameters = operation.parameters.filter(({ $ref }) => !$ref?.endsWith("/XAccountId"));
  }
  return document;
}

/** Returns schemathesis' exit code: 0 if it found nothing. */
async function fuzz(fuzzer: string, document: string, { url, key }: Running): Promise<number> {
  const config = join(folder, "schemathesis.toml");
  await writeFile(config, `[auth.openapi.apiKey]\nbearer = "${key}"\n`);
  const options = [
    ...["--config-file", config, "run", document, "--url", `${url}/v1`],
    // Excluded: that schema-valid requests are accepted. An unknown cursor and the URL of a private host are valid by
    // schema, but refused.
    ...["--checks", "all", "--exclude-checks", "positive_data_acceptance"],
    ...["--generation-database", "none", "--max-examples", "200"],
    ...process.argv.slice(2),
  ];
  const hooksFile = join(folder, "hooks.py");
  await writeFile(hooksFile, hooks);
  const env = { ...process.env, SCHEMATHESIS_HOOKS: hooksFile };
  const { status } = spawnSync(fuzzer, options, { cwd: folder, env, stdio: "inherit" });
  return status ?? 1;
}
