import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { importSigningKey, signatureHeader } from "../../../src/signing/index.ts";
import { RunningCommand, runSealpost } from "../../support/command.ts";
import { createTestPoster, postRequest } from "../../support/poster.ts";
import { SealpostProcess } from "../../support/sealpost-process.ts";

const SECRET = "whsec_bGlzdGVuIHRvIHdoYXQgYXJyaXZlcyBoZXJlIHRvZGF5";
const OLD_SECRET = "whsec_dGhlIG9uZSBiZWZvcmUsIHdoaWxlIGl0IGlzIHJvdGF0ZWQ=";
const folder = mkdtempSync(join(tmpdir(), "sealpost-listen-"));
let running: RunningCommand | SealpostProcess | null = null;

afterAll(() => rmSync(folder, { recursive: true }));
afterEach(async () => {
  await running?.stop();
});

async function listen(more: readonly string[] = [], isProcess = false) {
  const args = ["receiver", "listen", "--port", "0", ...more];
  const env = { SEALPOST_SECRET: `${SECRET} ${OLD_SECRET}` };
  running = isProcess ? new SealpostProcess(args, env) : new RunningCommand(args, { env });
  const started = running;
  const next = () => started.nextLine();
  const first = await next();
  return { started, next, first, url: /https?:\/\/[\w.:]+\//.exec(first)?.[0] ?? "" };
}

function webhook(
  options: { secrets?: readonly string[]; ageSeconds?: number; event?: object; body?: Buffer } = {},
) {
  const { secrets = [SECRET], ageSeconds = 0, event = {} } = options;
  const example = {
    id: "01a1f7b0-0000-7000-8000-000000000001",
    event: "analysis.succeeded",
    created_at: "2026-01-01T00:00:00.000Z",
    data: { id: "an_1", status: "succeeded", example: true },
  };
  const { body = Buffer.from(JSON.stringify({ ...example, ...event })) } = options;
  const timestampSeconds = Math.floor(Date.now() / 1_000) - ageSeconds;
  const keys = secrets.map(importSigningKey);
  const headers = {
    "content-type": "application/json",
    "extract-signature": signatureHeader({ timestampSeconds, body, keys }),
  };
  return { headers, body };
}

async function post(url: string, { headers, body }: ReturnType<typeof webhook>): Promise<number> {
  const response = await fetch(url, { method: "POST", headers, body: new Uint8Array(body) });
  await response.arrayBuffer();
  return response.status;
}

describe("receiver listen", () => {
  test("answers a challenge with its text, and says so", async () => {
    const { url, next } = await listen();
    const body = Buffer.from('{"type":"webhook.challenge","challenge":"a-1"}');
    const { headers } = webhook({ body });
    const response = await fetch(url, { method: "POST", headers, body });
    expect([response.status, await response.text()]).toEqual([200, "a-1"]);
    expect(await next()).toMatch(/POST \/ → 200 {2}a challenge, answered$/);
  });

  test("accepts valid webhooks and prints them", async () => {
    const { url, next, started } = await listen(["--json"], true);
    expect(await post(url, webhook())).toBe(204);
    expect(JSON.parse(await next())).toMatchObject({
      event: "arrived",
      status: 204,
      is_valid: true,
      reason: null,
      is_repeat: false,
      webhook: { event: "analysis.succeeded", data: { id: "an_1" } },
    });
    expect(await post(url, webhook())).toBe(204);
    expect(JSON.parse(await next())).toMatchObject({ status: 204, is_repeat: true });
    await started.stop("SIGINT");
    expect(await started.finished).toMatchObject({ code: 0, stderr: "" });
  });

  test("refuses the rest and prints why", async () => {
    const { url, next } = await listen(["--tolerance", "60", "--json"]);
    expect(await post(url, webhook({ secrets: [OLD_SECRET] }))).toBe(204);
    expect(JSON.parse(await next())).toMatchObject({ is_valid: true });
    expect(await post(url, webhook({ secrets: ["whsec_anotherOne"] }))).toBe(400);
    expect(JSON.parse(await next())).toMatchObject({ is_valid: false, reason: "no_signature_matches" });
    expect(await post(url, webhook({ ageSeconds: 61 }))).toBe(400);
    expect(JSON.parse(await next())).toMatchObject({ is_valid: false, reason: "timestamp_too_old" });
    const { body, headers } = webhook();
    expect(await post(url, { body, headers: { ...headers, "extract-signature": "" } })).toBe(400);
    expect(JSON.parse(await next())).toMatchObject({ reason: "header_missing", webhook: null });
    expect((await fetch(url)).status).toBe(405);
  });

  test("prints no control characters and no secret", async () => {
    const { url, next } = await listen();
    await post(
      url,
      webhook({ event: { data: { id: "\u009b2J\u007f", status: "succeeded", example: true } } }),
    );
    const head = await next();
    expect(head).toMatch(
      /POST \/ → 204 {2}verified analysis\.succeeded, delivery 01a1f7b0.* \(an example\)$/,
    );
    const shown = await next();
    expect(shown).toContain('"status":"succeeded"');
    expect(shown).not.toMatch(/\p{Cc}/u);
    expect(head + shown).not.toContain(SECRET);
  });

  test("with --https answers a dispatcher that trusts its authority", async () => {
    const caFile = join(folder, "ca.pem");
    const { url } = await listen(["--https", "--ca-file", caFile]);
    const { port } = new URL(url);
    const { headers, body } = webhook();
    const target = new URL(`https://localhost:${port}/webhooks`);
    const trusting = createTestPoster({ ports: [Number(port)], caPem: readFileSync(caFile, "utf8") });
    expect(await trusting.post(postRequest(target, { headers, body }))).toMatchObject({ statusCode: 204 });
    await trusting.close();
    const stranger = createTestPoster({ ports: [Number(port)] });
    expect(await stranger.post(postRequest(target, { headers, body }))).toMatchObject({
      outcome: "tls_failed",
    });
    await stranger.close();
  });

  test("with --ca-file stays who it was, start after start", async () => {
    const caFile = join(folder, "kept.pem");
    const arrive = async (url: string, caPem: string) => {
      const port = Number(new URL(url).port);
      const { headers, body } = webhook();
      const trusting = createTestPoster({ ports: [port], caPem });
      const target = new URL(`https://localhost:${port}/webhooks`);
      const result = await trusting.post(postRequest(target, { headers, body }));
      await trusting.close();
      return result.statusCode;
    };
    const first = await listen(["--https", "--ca-file", caFile]);
    const trusted = readFileSync(caFile, "utf8");
    expect(await arrive(first.url, trusted)).toBe(204);
    await first.started.stop();

    const second = await listen(["--https", "--ca-file", caFile]);
    expect(await arrive(second.url, trusted)).toBe(204);
    expect(statSync(`${caFile}.key`).mode & 0o777).toBe(0o600);
    await second.started.stop();

    // Without what it needs to be the same again, it says that the service has to hear of it.
    rmSync(`${caFile}.key`);
    const third = await listen(["--https", "--ca-file", caFile, "--json"]);
    expect(JSON.parse(third.first)).toEqual({ event: "authority_replaced", ca_file: caFile });
    expect(readFileSync(caFile, "utf8")).not.toBe(trusted);
  });

  test.each([
    [["--secret", " "], "empty"],
    [["--host", "192.0.2.1"], "cannot listen"],
    [["--ca-file", "x.pem"], "--https"],
    [["--https", "--ca-file", "/no/such/folder/x.pem"], "cannot be written (ENOENT)"],
  ])("says what is wrong with %s", async (args, text) => {
    const { code, stderr } = await runSealpost(["receiver", "listen", "--port", "0", ...args], {
      env: { SEALPOST_SECRET: SECRET },
    });
    expect(code).toBe(2);
    expect(stderr).toContain(text);
    expect(stderr.split("\n")).toHaveLength(2);
  });
});
