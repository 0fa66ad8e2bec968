// A first webhook on one's own machine, as the README has it: beside a service that was started with nothing set.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import type { LogLine } from "../../support/child-processes.ts";
import { runSealpost } from "../../support/command.ts";
import { SECRETS_KEY } from "../../support/installation.ts";
import { startReceiver } from "../../support/receiver.ts";
import { SealpostProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";

// One folder for all that work on one account.
const stateDir = mkdtempSync(join(tmpdir(), "sealpost-try-"));
const env = { STATE_DIR: stateDir };
const running: SealpostProcess[] = [];

afterAll(() => rmSync(stateDir, { recursive: true }));
afterEach(async () => {
  // What was started last is a client of what was started first.
  for (const one of running.splice(0).reverse()) await one.stop();
});

function run(args: readonly string[], more: Record<string, string> = {}): SealpostProcess {
  const started = new SealpostProcess([...args, "--json"], { ...env, ...more });
  running.push(started);
  return started;
}

/** Resolves when the service runs, with what it offers. */
async function start(more: Record<string, string> = {}) {
  const service = run(["start"], { PORT: "0", LOG_LEVEL: "silent", ...more });
  const api = await service.waitForLine((one) => one.event === "running" && one.name === "API");
  const { url } = await service.waitForLine((one) => one.event === "receiver_offered");
  return { service, apiUrl: String(api.url), offered: String(url) };
}

const arrived = (one: LogLine) => one.event === "arrived";
const analysisOf = (line: LogLine) => (line.webhook as { data: { id: string } }).data.id;
let apiKey = "";
let accountId = "";

async function publish(apiUrl: string, id: string): Promise<void> {
  const headers = {
    authorization: `Bearer ${apiKey}`,
    "content-type": "application/json",
    "idempotency-key": id,
  };
  const body = JSON.stringify({ analysis: { id, status: "succeeded" } });
  const answer = await fetch(`${apiUrl}/v1/analyses`, { method: "POST", headers, body });
  expect(answer.status).toBe(202);
}

describe("receiver try", { timeout: patience(90_000) }, () => {
  test("is an account's first endpoint, and prints an example and all that follows, verified", async () => {
    const { service, apiUrl, offered } = await start();
    const account = await service.waitForLine((one) => one.event === "first_account");
    apiKey = String(account.api_key);
    accountId = String(account.account_id);

    const receiver = run(["receiver", "try"]);
    const url = `${offered}/webhooks`;
    const listening = { event: "listening", url, account_id: accountId, endpoint: url };
    expect(JSON.parse(await receiver.nextLine())).toEqual(listening);
    const example = JSON.parse(await receiver.nextLine());
    expect(example).toMatchObject({ status: 204, is_valid: true, webhook: { data: { example: true } } });
    await publish(apiUrl, "own-1");
    const own = JSON.parse(await receiver.nextLine());
    expect([own.is_valid, analysisOf(own)]).toEqual([true, "own-1"]);

    // The one private target, and no other.
    const set = (to: string) =>
      runSealpost(["endpoint", "set", "--account", accountId, "--url", to], { env });
    expect(await set(url.replace(/:\d+/, ":4000"))).toMatchObject({ code: 2 });
    expect(await set(url)).toMatchObject({ code: 0 });

    // What commands ask by default is this service, though its port was left open.
    const forwarding = run(["receiver", "forward", "--to", "http://localhost:9/"], {
      SEALPOST_API_KEY: apiKey,
    });
    expect(JSON.parse(await forwarding.nextLine())).toMatchObject({ event: "forwarding", from: apiUrl });
    expect(await receiver.stop("SIGINT")).toBe(0);
    expect(receiver.errors).toBe("");
  });

  test("leaves an endpoint that is used where it is, and takes the place of one that is refused", async () => {
    const { offered } = await start();
    const url = `${offered}/webhooks`;
    // That of the service before, whose port was another.
    const first = run(["receiver", "try", "--account", accountId]);
    expect(JSON.parse(await first.nextLine())).toMatchObject({ url, endpoint: url });
    await first.waitForLine(arrived);
    await first.stop();
    const endpoint = "https://hooks.example.com/analyses";
    await runSealpost(["endpoint", "set", "--account", accountId, "--url", endpoint], { env });
    const second = run(["receiver", "try"]);
    expect(JSON.parse(await second.nextLine())).toMatchObject({ url, endpoint });
    const example = await second.waitForLine(arrived);
    expect(example).toMatchObject({ is_valid: true, webhook: { data: { example: true } } });
  });

  test("is the only one that webhooks go to there: who has another key gets none", async () => {
    const { apiUrl, offered } = await start();
    const first = run(["receiver", "try"]);
    await first.waitForLine(arrived);
    await first.stop();
    await runSealpost(["endpoint", "set", "--account", accountId, "--url", `${offered}/webhooks`], { env });
    const stranger = await startReceiver({ port: Number(new URL(offered).port) });
    await publish(apiUrl, "own-2");
    const attempts = async () => {
      const url = `${apiUrl}/v1/webhooks/deliveries?analysis_id=own-2`;
      const answer = await fetch(url, { headers: { authorization: `Bearer ${apiKey}` } });
      return JSON.stringify(await answer.json());
    };
    await expect.poll(attempts, { timeout: patience(20_000) }).toMatch(/"last_error_code":"tls_/);
    expect(stranger.requests).toEqual([]);
    await stranger.close();
  });

  test("is refused where no service runs, or one that offers nothing", async () => {
    const none = await runSealpost(["receiver", "try"], { env });
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining("run `npm start`") });

    const production = { ENVIRONMENT: "production", SECRETS_KEY: SECRETS_KEY.toString("base64") };
    const folder = join(stateDir, "production");
    const service = run(["start"], { PORT: "0", LOG_LEVEL: "silent", STATE_DIR: folder, ...production });
    await service.waitForLine((one) => one.event === "first_account");
    expect(service.lines.map((one) => one.event)).not.toContain("receiver_offered");
    const refused = await runSealpost(["receiver", "try"], { env: { STATE_DIR: folder, ...production } });
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining("in development") });
  });
});
