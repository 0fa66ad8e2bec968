import { afterEach, describe, expect, test } from "vitest";
import { verifyWebhook } from "../../../src/signing/index.ts";
import { runSealpost } from "../../support/command.ts";
import { targetsEnv } from "../../support/dispatching.ts";
import { SECRETS_KEY } from "../../support/installation.ts";
import { freePort } from "../../support/ports.ts";
import { type Receiver, type ReceiverHandler, startReceiver } from "../../support/receiver.ts";

const SECRET = "whsec_Y2hlY2tlZCBmcm9tIHRoZSBjb21tYW5kIGxpbmU=";
let receiver: Receiver | null = null;

afterEach(async () => {
  await receiver?.close();
  receiver = null;
});

const right: ReceiverHandler = ({ body, headers }) => {
  try {
    verifyWebhook({ rawBody: body, header: headers["extract-signature"], secret: SECRET });
    return { status: 204 };
  } catch {
    return { status: 400 };
  }
};

async function start(handler: ReceiverHandler) {
  receiver = await startReceiver({ handler });
  const args = ["receiver", "check", "--url", receiver.url("/webhooks").href];
  return { args, env: { SEALPOST_SECRET: SECRET, ...targetsEnv([receiver]) } };
}

describe("receiver check", () => {
  test("ends with 0 for a right receiver", async () => {
    const { args, env } = await start(right);
    const { code, stdout, stderr } = await runSealpost(args, { env });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toMatchObject({
      verdict: "right",
      faults: [],
      connection: { tls_version: "TLSv1.3" },
    });
    expect(stdout).not.toContain(SECRET);
  });

  test("ends with 1 for one that accepts forgeries, and lists that first", async () => {
    const { args, env } = await start(() => ({ status: 200 }));
    const { code, stdout } = await runSealpost([...args, "--json"], { env });
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      verdict: "dangerous",
      faults: [{ code: "verifies_nothing" }],
    });
  });

  test("prints text on a terminal", async () => {
    const { args, env } = await start(() => ({ status: 200 }));
    const { code, stdout: text } = await runSealpost(args, { env, isTerminal: true });
    expect(text).toMatch(
      /^https:\/\/localhost:\d+\/webhooks is dangerous: .*\n\n1\. danger: It does not verify/,
    );
    expect(text).toMatch(/\n {2}wrong +a webhook signed with another secret +not 2xx +200 +\d+ ms\n/);
    expect(text).toMatch(
      /\nHTTP\/1\.1 over TLSv1\.3, address 127\.0\.0\.1, certificate valid for 364 more days, /,
    );
    expect(code).toBe(1);
  });

  test.each([
    [["--url", "http://example.com/"], /https/],
    [["--url", "http://10.0.0.1/"], /https/],
    [["--url", "http://localhost.example.com/"], /https/],
    [["--url", "http://user:word@localhost/"], /https/],
    [["--url", "https://10.0.0.1/"], /public/],
    [["--url", "https://example.com/", "--secret", " "], /empty/],
  ])("sends nothing and ends with 2 for %s", async (more, message) => {
    const { code, stdout, stderr } = await runSealpost(["receiver", "check", ...more], {
      env: { SEALPOST_SECRET: SECRET },
    });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(message);
    expect(stderr.trim().split("\n")).toHaveLength(1);
  });
});

describe("receiver check of plain HTTP on this machine", () => {
  const startPlain = async (handler: ReceiverHandler) => {
    receiver = await startReceiver({ handler, plain: true });
    return receiver;
  };

  test.each(["localhost", "127.0.0.1"])("finds a right one at %s right, in development", async (host) => {
    const { port, requests } = await startPlain(right);
    const url = `http://${host}:${port}/webhooks?from=here`;
    const env = { SEALPOST_SECRET: SECRET };
    const { code, stdout, stderr } = await runSealpost(["receiver", "check", "--url", url], { env });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const connection = { tls_version: null, certificate_days_left: null, remote_address: "127.0.0.1" };
    expect(JSON.parse(stdout)).toMatchObject({ url, verdict: "right", faults: [], connection });
    expect(requests.length).toBeGreaterThan(14);
    expect(new Set(requests.map(({ path }) => path))).toEqual(new Set(["/webhooks?from=here"]));
  });

  test("tells one that verifies nothing so", async () => {
    const { port } = await startPlain(() => ({ status: 200 }));
    const args = ["receiver", "check", "--url", `http://localhost:${port}/`];
    const { code, stdout } = await runSealpost(args, { env: { SEALPOST_SECRET: SECRET } });
    expect([code, JSON.parse(stdout).faults[0].code]).toEqual([1, "verifies_nothing"]);
  });

  test("says that nobody listens there", async () => {
    const url = `http://localhost:${await freePort()}/webhooks`;
    const env = { SEALPOST_SECRET: SECRET };
    const { code, stderr } = await runSealpost(["receiver", "check", "--url", url], { env });
    expect(code).toBe(2);
    expect(stderr).toBe(
      `Nothing listens at ${new URL(url).origin} (ECONNREFUSED): start your receiver first.\n`,
    );
  });

  test.each(["localhost", "127.0.0.1", "[::1]"])("sends nothing to %s in production", async (host) => {
    const { port, requests } = await startPlain(right);
    const production = { ENVIRONMENT: "production", SECRETS_KEY: SECRETS_KEY.toString("base64") };
    const env = { SEALPOST_SECRET: SECRET, ...production };
    for (const scheme of ["http", "https"]) {
      const args = ["receiver", "check", "--url", `${scheme}://${host}:${port}/`];
      const { code, stderr } = await runSealpost(args, { env });
      expect(code).toBe(2);
      expect(stderr).toMatch(scheme === "http" ? /does not begin with https/ : /not public|a local name/);
    }
    expect(requests).toEqual([]);
  });
});
