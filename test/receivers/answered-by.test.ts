import { afterEach, expect, test } from "vitest";
import type { ReceiverReport } from "../../src/receivers/receiver-check.ts";
import { type Receiver, type ScriptedAnswer, startReceiver } from "../support/receiver.ts";
import { createTestCheck } from "../support/receiver-check.ts";

const SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgcmVjZWl2ZXIgdG8gY2hlY2s=";

const open: Receiver[] = [];
afterEach(async () => {
  for (const receiver of open.splice(0)) await receiver.close();
});

/** Checks a receiver that always gets the same answer. */
async function check(answer: ScriptedAnswer): Promise<ReceiverReport> {
  const receiver = await startReceiver({ handler: () => answer });
  open.push(receiver);
  const url = receiver.url("/webhooks");
  return await createTestCheck(receiver)({ url, secrets: [SECRET], nowMs: Date.now() });
}

const codesOf = ({ faults }: ReceiverReport) => faults.map(({ code }) => code);

test("a receiver behind a login is told so", async () => {
  const report = await check({ status: 302, headers: { location: "https://a.okta.com/login" } });
  expect(codesOf(report)).toEqual(["redirects"]);
  expect(report.faults[0]).toMatchObject({
    message: "Okta answered: it wants somebody to sign in (status 302).",
    remedy: expect.stringContaining("login"),
  });
  const evidence = "Shown by a redirect to okta.com.";
  expect(report.answered_by).toEqual({ kind: "login", name: "Okta", evidence });
});

test("one behind a firewall is told nothing of its secret", async () => {
  const report = await check({ status: 403, headers: { "cf-mitigated": "challenge" } });
  expect(codesOf(report)).toEqual(["refuses_genuine"]);
  expect(report.faults[0]).toMatchObject({
    message: "Cloudflare answered: it blocks the request, or wants proof of a browser (status 403).",
    remedy: expect.not.stringContaining("secret"),
  });
  expect(report.probes[0]?.explanation).toContain("Cloudflare answered:");
});

test("one behind a tunnel is told that the tunnel is offline", async () => {
  const report = await check({ status: 503, body: "503 - Tunnel Unavailable" });
  expect(codesOf(report)).toEqual(["no_answer"]);
  expect(report.faults[0]?.message).toBe("localtunnel answered: the tunnel is not running (status 503).");
});

test.each([204, 400, 500])("one that answers %i itself is not taken for anybody else", async (status) => {
  expect((await check({ status })).answered_by).toBeNull();
});
