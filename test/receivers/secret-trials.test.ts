// What the check finds out beside its probes: which secret a receiver has, and whether it answers challenges.
import { createHmac } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import { readChallenge, verifyWebhook } from "../../src/signing/index.ts";
import {
  type ReceivedRequest,
  type Receiver,
  type ScriptedAnswer,
  startReceiver,
} from "../support/receiver.ts";
import { createTestCheck } from "../support/receiver-check.ts";

const SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgcmVjZWl2ZXIgdG8gY2hlY2s=";
const OLD_SECRET = "whsec_dGhlIHNlY3JldCBiZWZvcmUgdGhlIGxhc3Qgcm90YXRpb24=";

type Handler = (request: ReceivedRequest) => ScriptedAnswer;

const open: Receiver[] = [];
afterEach(async () => {
  for (const receiver of open.splice(0)) await receiver.close();
});

/** Checks a receiver that answers as `handler` does, with the account's secrets. */
async function check(handler: Handler, secrets: readonly string[] = [SECRET], challenges = false) {
  const receiver = await startReceiver({ handler });
  open.push(receiver);
  return await createTestCheck(
    receiver,
    undefined,
    challenges,
  )({ url: receiver.url("/in"), secrets, nowMs: Date.now(), signsStandard: true });
}

/** A right one, that has these. */
const having =
  (...secrets: readonly string[]): Handler =>
  ({ body, headers }) => {
    try {
      const input = { rawBody: body, header: headers["extract-signature"], secrets };
      const challenge = readChallenge(input);
      if (challenge !== null) return { body: challenge };
      verifyWebhook(input);
      return { status: 204 };
    } catch {
      return { status: 400 };
    }
  };

describe("during a rotation", () => {
  test.each([
    ["has the new one only", having(SECRET), { current: true, previous: false }],
    ["has the old one only", having(OLD_SECRET), { current: false, previous: true }],
    ["has both", having(OLD_SECRET, SECRET), { current: true, previous: true }],
    ["has neither", having("whsec_c29tZXRoaW5nIGVsc2U="), { current: false, previous: false }],
    ["accepts anything", () => ({ status: 204 }), { current: null, previous: null }],
    ["is down", () => ({ status: 503 }), { current: null, previous: null }],
  ])("a receiver that %s is told so", async (_what, handler, accepted) => {
    expect((await check(handler, [SECRET, OLD_SECRET])).accepts_secrets).toEqual(accepted);
  });
});

test("a receiver's one secret is told, too", async () => {
  expect((await check(having(SECRET))).accepts_secrets).toEqual({ current: true, previous: null });
  const wrong = await check(having(OLD_SECRET));
  expect(wrong.accepts_secrets).toEqual({ current: false, previous: null });
  expect(wrong.faults.map(({ code }) => code)).toEqual(["refuses_genuine"]);
});

describe("a receiver that decodes the secret", () => {
  const decoding =
    (secret: string): Handler =>
    (request) => {
      const key = Buffer.from(secret.replace("whsec_", ""), "base64");
      const header = String(request.headers["extract-signature"]);
      const t = /^t=(\d+)/.exec(header)?.[1] ?? "";
      const isFresh = Math.abs(Date.now() / 1_000 - Number(t)) < 300;
      const expected = createHmac("sha256", key).update(`${t}.`).update(request.body).digest("hex");
      return { status: isFresh && header.includes(`v1=${expected}`) ? 204 : 401 };
    };

  test.each([
    ["the account's only secret", [SECRET], SECRET],
    ["the current of two", [SECRET, OLD_SECRET], SECRET],
    ["the previous of two", [SECRET, OLD_SECRET], OLD_SECRET],
  ])("is told so: %s", async (_what, secrets, secret) => {
    const report = await check(decoding(secret), secrets);
    expect(report.verdict).toBe("faulty");
    expect(report.faults).toMatchObject([
      {
        code: "decodes_secret",
        message: expect.stringMatching(/base64/),
        remedy: expect.stringMatching(/not decoded/),
      },
    ]);
    expect(report.probes[0]).toMatchObject({ name: "genuine", verdict: "wrong" });
  });

  test("and one that tries both forms is right", async () => {
    const either: Handler = (request) =>
      having(SECRET)(request).status === 204 ? { status: 204 } : decoding(SECRET)(request);
    expect((await check(either)).faults).toEqual([]);
  });
});

const deaf: Handler = (request) =>
  request.body.includes('"type"') ? { status: 400 } : having(SECRET)(request);

const returningId: Handler = ({ headers }) => ({ body: `${headers["webhook-id"]}` });

test.each<[what: string, handler: Handler, answers: boolean, faults: readonly string[]]>([
  ["answers", having(SECRET), true, []],
  ["takes for no event, and has to answer", deaf, false, ["ignores_challenge"]],
  ["echoes", ({ body }) => ({ body }), false, ["verifies_nothing", "ignores_challenge"]],
  ["answers with its id", returningId, false, ["verifies_nothing", "ignores_challenge"]],
])(
  "a challenge that a receiver %s is reported, as a fault if it has to",
  async (_, handler, answers, faults) => {
    for (const challenges of [false, true]) {
      const report = await check(handler, [SECRET], challenges);
      expect(report.answers_challenge).toBe(answers);
      const codes = report.faults.map(({ code }) => code);
      expect(codes).toEqual(faults.filter((code) => challenges || code !== "ignores_challenge"));
    }
  },
);
