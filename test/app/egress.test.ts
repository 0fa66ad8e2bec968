import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { createEgress } from "../../src/app/egress.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { createPoster } from "../../src/egress/post/post.ts";
import { sharedAuthority } from "../support/certificates.ts";
import { startEgressProxy } from "../support/egress-proxy.ts";
import { postRequest } from "../support/poster.ts";
import { startReceiver } from "../support/receiver.ts";

const folder = mkdtempSync(join(tmpdir(), "sealpost-connect-"));
const caFile = join(folder, "ca.pem");
const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});
afterAll(() => rmSync(folder, { recursive: true }));

async function setUp(env: Record<string, string> = {}) {
  writeFileSync(caFile, (await sharedAuthority()).caPem);
  const receiver = await startReceiver();
  const config = readConfig({
    TARGET_CA_FILE: caFile,
    UNSAFE_ALLOWED_TARGETS: `localhost:${receiver.port}`,
    ...env,
  });
  const poster = createPoster({ egress: createEgress(config), now: () => performance.now() });
  open.push(receiver, poster);
  return { receiver, poster };
}

describe("the way out to targets", () => {
  test("is direct, to what is allowed, trusting the configured authorities", async () => {
    const { receiver, poster } = await setUp();
    const result = await poster.post(postRequest(receiver.url("/hooks")));
    expect(result).toMatchObject({ outcome: "succeeded", remoteAddress: "127.0.0.1" });
  });

  test("does not lead to what is not allowed", async () => {
    const { receiver, poster } = await setUp({ UNSAFE_ALLOWED_TARGETS: "localhost:1" });
    const result = await poster.post(postRequest(receiver.url("/hooks", "127.0.0.1")));
    expect(result).toMatchObject({ outcome: "target_refused", mayHaveWritten: false });
    expect(receiver.connectionsCount).toBe(0);
  });

  test("leads through the egress proxy where there is one", async () => {
    const proxy = await startEgressProxy();
    open.push(proxy);
    const { receiver, poster } = await setUp({ EGRESS_PROXY_URL: `http://127.0.0.1:${proxy.port}` });
    const result = await poster.post(postRequest(receiver.url("/hooks")));
    expect(result).toMatchObject({ outcome: "succeeded", remoteAddress: null });
    expect(proxy.heads).toHaveLength(1);
  });

  test("is refused when an unsafely allowed target is not spelled as URLs are", () => {
    const config = readConfig({ UNSAFE_ALLOWED_TARGETS: "localhost:8443,127.1:8443" });
    expect(() => createEgress(config)).toThrow(
      expect.objectContaining({
        name: "ConfigError",
        problems: [expect.stringMatching(/^UNSAFE_ALLOWED_TARGETS cannot be used: "127\.1:8443" is not/)],
      }),
    );
  });

  test.each([
    ["is missing", () => join(folder, "missing.pem"), "missing.pem) cannot be read (ENOENT)."],
    ["holds no certificate", () => emptyFile(), "empty.pem) cannot be used: "],
  ])("is refused when the file of authorities %s", (_what, path, message) => {
    const config = readConfig({ TARGET_CA_FILE: path() });
    expect(() => createEgress(config)).toThrow(
      expect.objectContaining({ name: "ConfigError", problems: [expect.stringContaining(message)] }),
    );
  });
});

function emptyFile(): string {
  const path = join(folder, "empty.pem");
  writeFileSync(path, "nothing\n");
  return path;
}
