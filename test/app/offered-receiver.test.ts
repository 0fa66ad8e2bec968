import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { certificateFileOf, offerReceiver } from "../../src/app/offered-receiver.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { SECRETS_KEY } from "../support/installation.ts";

const STATE_DIR = mkdtempSync(join(tmpdir(), "sealpost-offered-"));
afterAll(() => rmSync(STATE_DIR, { recursive: true }));

const offer = (env: Record<string, string>) => offerReceiver(readConfig({ STATE_DIR, ...env }), Date.now);

describe("in development, a start with its own database offers a receiver", () => {
  test("on the port after the API's, beside what is allowed already, with a certificate that stays", async () => {
    const offered = await offer({ PORT: "8080", UNSAFE_ALLOWED_TARGETS: "localhost:4000" });
    const caFile = certificateFileOf(readConfig({ STATE_DIR }));
    expect(offered).toEqual({
      port: 8_081,
      env: { UNSAFE_ALLOWED_TARGETS: "localhost:4000,localhost:8081", TARGET_CA_FILE: caFile },
    });
    const certificate = readFileSync(caFile, "utf8");
    expect(statSync(`${caFile}.key`).mode & 0o777).toBe(0o600);
    await offer({});
    expect(readFileSync(caFile, "utf8")).toBe(certificate);
  });

  // The receiver is started later: an ephemeral port may be another socket's by then.
  test.each(["0", "65535"])("on a free port that is not ephemeral where PORT is %s", async (PORT) => {
    const { port = 0, env } = (await offer({ PORT }))!;
    expect(port).toBeGreaterThan(1_023);
    expect(port).toBeLessThan(32_768);
    expect(env.UNSAFE_ALLOWED_TARGETS).toBe(`localhost:${port}`);
  });
});

test.each([
  { ENVIRONMENT: "production", SECRETS_KEY: SECRETS_KEY.toString("base64") },
  { DATABASE_URL: "postgres://sealpost@127.0.0.1/platform" },
  { TARGET_CA_FILE: "ca.pem" },
  { EGRESS_PROXY_URL: "http://127.0.0.1:3128" },
  { AREAS: "workspace" },
])("no receiver is offered with %j", async (env) => {
  expect(await offer(env as unknown as Record<string, string>)).toBeNull();
});
