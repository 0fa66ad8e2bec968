// What the specification's own libraries say of webhooks that were really delivered, and of forgeries of each.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import { createTestAccount, publishMany, rotateSecret } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { findProgram } from "../support/programs.ts";
import { startReceiver } from "../support/receiver.ts";
import { patience } from "../support/time-limits.ts";
import { REPOSITORY } from "./stranger.ts";

const GENUINE = 200;
const PYTHON_PACKAGE = "standardwebhooks==1.1.0";
const GO_MODULE = "github.com/standard-webhooks/standard-webhooks/libraries@v0.0.1";

type Sent = { readonly secret: string; readonly body: string; readonly headers: Record<string, string> };

const folder = mkdtempSync(join(tmpdir(), "standard-webhooks-"));
afterAll(() => rmSync(folder, { recursive: true }));
let genuine: Sent[];
let forged: Sent[];

/** Half of them before a rotation, half during its overlap, of which half are verified with the secret before. */
beforeAll(async () => {
  const database = await openDatabase();
  await using receiver = await startReceiver();
  const { accountId, secret } = await createTestAccount(database, receiver.url("/").href);
  await setEndpoint(database.pool, accountId, receiver.url("/").href, { signsStandard: true });
  const dispatcher = startTestDispatcher(database, [receiver]);
  const deliver = async (from: number, to: number) => {
    const texts = Array.from(
      { length: to - from },
      (_, n) => `{"id":"s-${from + n}","status":"succeeded","n":1E400}`,
    );
    await publishMany(
      database.pool,
      texts.map(() => accountId),
      texts,
      texts.map(() => null),
    );
    await receiver.waitForRequests(to);
  };
  await deliver(0, GENUINE / 2);
  const next = await rotateSecret(database.pool, accountId);
  await deliver(GENUINE / 2, GENUINE);
  await dispatcher.stop();
  const secretOf = (n: number) => (n < GENUINE / 2 || n % 2 === 0 ? secret : next);
  genuine = receiver.requests.map(({ body, headers }, n) => ({
    secret: secretOf(n),
    body: body.toString("base64"),
    headers: Object.fromEntries(
      ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => [name, String(headers[name])]),
    ),
  }));
  forged = genuine.map(forge);
}, patience(60_000));

/** Another body, id, time, secret or signature, in turn. */
function forge({ secret, body, headers }: Sent, n: number): Sent {
  const bytes = Buffer.from(body, "base64");
  const changed = Buffer.concat([bytes.subarray(0, -1), Buffer.from(" }")]).toString("base64");
  const signature = headers["webhook-signature"]!;
  return [
    { secret, body: changed, headers },
    {
      secret,
      body,
      headers: { ...headers, "webhook-id": genuine[(n + 1) % GENUINE]!.headers["webhook-id"]! },
    },
    {
      secret,
      body,
      headers: { ...headers, "webhook-timestamp": String(Number(headers["webhook-timestamp"]) - 1) },
    },
    { secret: `whsec_${Buffer.alloc(32, n).toString("base64")}`, body, headers },
    { secret, body, headers: { ...headers, "webhook-signature": signature.replaceAll("v1,", "v1a,") } },
  ][n % 5]!;
}

const lines = (sent: readonly Sent[]) => `${sent.map((one) => JSON.stringify(one)).join("\n")}\n`;
const all = (verdict: string) => Array(GENUINE).fill(verdict);

function judgedBy(command: string, args: readonly string[], sent: readonly Sent[]): readonly string[] {
  const options = { cwd: folder, encoding: "utf8", input: lines(sent) } as const;
  return execFileSync(command, args, options).trim().split("\n");
}

test("JavaScript's accepts 200 of 200, and refuses 200 of 200 forgeries", () => {
  const verdict = ({ secret, body, headers }: Sent) => {
    try {
      new Webhook(secret).verify(Buffer.from(body, "base64"), headers, { jsonParse: false });
      return "accept";
    } catch {
      return "reject";
    }
  };
  expect(genuine.map(verdict)).toEqual(all("accept"));
  expect(forged.map(verdict)).toEqual(all("reject"));
});

test("Python's accepts 200 of 200, and refuses 200 of 200 forgeries", {
  timeout: patience(180_000),
}, (context) => {
  const python = findProgram("python3");
  if (python === null) return context.skip("python3 is not installed");
  try {
    execFileSync(python, ["-m", "venv", join(folder, "venv")], { stdio: "pipe" });
    execFileSync(join(folder, "venv", "bin", "pip"), ["install", "--quiet", PYTHON_PACKAGE], {
      stdio: "pipe",
    });
  } catch (error) {
    return context.skip(`${PYTHON_PACKAGE} cannot be installed here: ${String(error).slice(0, 200)}`);
  }
  const judge = (sent: readonly Sent[]) =>
    judgedBy(
      join(folder, "venv", "bin", "python"),
      [join(REPOSITORY, "test/packages/standard/verdicts.py")],
      sent,
    );
  expect(judge(genuine)).toEqual(all("accept"));
  expect(judge(forged)).toEqual(all("reject"));
});

test("Go's accepts 200 of 200, and refuses 200 of 200 forgeries", {
  timeout: patience(300_000),
}, (context) => {
  const go = findProgram("go");
  if (go === null) return context.skip("go is not installed");
  copyFileSync(join(REPOSITORY, "test/packages/standard/verdicts.go"), join(folder, "main.go"));
  const run = (...args: string[]) => execFileSync(go, args, { cwd: folder, stdio: "pipe" });
  run("mod", "init", "stranger");
  try {
    run("get", GO_MODULE);
  } catch (error) {
    return context.skip(`${GO_MODULE} cannot be fetched here: ${String(error).slice(0, 200)}`);
  }
  run("build", "-o", "verdicts", ".");
  const judge = (sent: readonly Sent[]) => judgedBy(join(folder, "verdicts"), [], sent);
  expect(judge(genuine)).toEqual(all("accept"));
  expect(judge(forged)).toEqual(all("reject"));
});
