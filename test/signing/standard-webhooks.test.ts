import { WebhookVerificationError as TheirError, Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import * as node from "../../src/signing/index.ts";
import { standardKey } from "../../src/signing/standard-webhooks.ts";
import * as web from "../../src/signing/web.ts";
import { standardVectors } from "./vectors.ts";

// Beside the library that the specification's authors publish: each takes what the other has signed, and refuses what
// it has not.

const SECRET = `whsec_${Buffer.alloc(32, 5).toString("base64")}`;
const OTHER = `whsec_${Buffer.alloc(32, 6).toString("base64")}`;
const NOW = 1_800_000_000;
const body = Buffer.from('{"id":"a","event":"analysis.succeeded","n":1E400}');

const keys = (...secrets: string[]) => secrets.map((secret) => node.importStandardKey(secret)!);
function signed(timestampSeconds = NOW, by = keys(SECRET), id = "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11") {
  return node.standardSignatureHeaders({ id, timestampSeconds, body, keys: by });
}
const theirs = () => {
  const at = new Date(NOW * 1_000);
  const signature = new Webhook(SECRET).sign("msg_1", at, body.toString());
  return { "webhook-id": "msg_1", "webhook-timestamp": String(NOW), "webhook-signature": signature };
};

test("their library takes what we sign, during a rotation too, and refuses forgeries", () => {
  const now = Math.floor(Date.now() / 1_000);
  const verify = (headers: Record<string, string>, bytes = body) =>
    new Webhook(SECRET).verify(bytes, headers, { jsonParse: false });
  for (const headers of [signed(now), signed(now, keys(SECRET, OTHER)), signed(now, keys(OTHER, SECRET))])
    expect(() => verify(headers)).not.toThrow(TheirError);
  expect(() => verify(signed(now, keys(OTHER)))).toThrow(TheirError);
  expect(() => verify(signed(now), Buffer.from("{}"))).toThrow(TheirError);
});

describe.each([
  ["node", async (input: node.VerifySignatureInput) => node.verifySignature(input)],
  ["web", web.verifySignature],
])("our library, %s", (_, verify) => {
  const judge = (headers: node.RequestHeaders, more: Partial<node.VerifySignatureInput> = {}) =>
    verify({ body, headers, secrets: [SECRET], nowSeconds: NOW, ...more } as node.VerifySignatureInput);

  test.each<[string, node.RequestHeaders]>([
    ["what theirs signs", theirs()],
    ["what is signed here", signed()],
    ["a Headers object", new Headers(signed())],
    [
      "names in another case",
      {
        "Webhook-Id": signed()["webhook-id"],
        "WEBHOOK-TIMESTAMP": String(NOW),
        "Webhook-Signature": [signed()["webhook-signature"]],
      },
    ],
    ["two signatures", signed(NOW, keys(OTHER, SECRET))],
    [
      "signatures of other versions",
      { ...signed(), "webhook-signature": `v1a,xyz ${signed()["webhook-signature"]} v2,=` },
    ],
    [
      "our own header, which counts where both are there",
      {
        ...theirs(),
        "webhook-signature": "v1,",
        "extract-signature": node.signatureHeader({
          timestampSeconds: NOW,
          body,
          keys: [node.importSigningKey(SECRET)],
        }),
      },
    ],
  ])("takes %s", async (_, headers) => {
    await judge(headers);
  });

  test.each<[string, node.RequestHeaders, string]>([
    ["another secret's", signed(NOW, keys(OTHER)), "no_signature_matches"],
    ["one of another message", { ...signed(), "webhook-id": "another" }, "no_signature_matches"],
    ["one of another time", { ...signed(), "webhook-timestamp": String(NOW + 1) }, "no_signature_matches"],
    ["an old one", signed(NOW - 300), "timestamp_too_old"],
    ["one from the future", signed(NOW + 300), "timestamp_ahead"],
    ["none", { "webhook-id": "a", "webhook-timestamp": String(NOW) }, "header_missing"],
    ["one without an id", { ...signed(), "webhook-id": undefined }, "header_missing"],
    ["an id with a full stop", signed(NOW, keys(SECRET), "a.1"), "header_malformed"],
    ["a time that is none", { ...signed(), "webhook-timestamp": "1e9" }, "header_malformed"],
    ["no v1", { ...signed(), "webhook-signature": "v1a,abc" }, "header_malformed"],
    ["an empty v1", { ...signed(), "webhook-signature": "v1," }, "header_malformed"],
    ["a header that came twice", { ...signed(), "webhook-id": ["a", "a"] }, "header_malformed"],
    [
      "our header's twice",
      { ...signed(), "extract-signature": "a", "Extract-Signature": "b" },
      "header_malformed",
    ],
    [
      "hex in place of base64",
      { ...signed(), "webhook-signature": `v1,${"ab".repeat(32)}` },
      "header_malformed",
    ],
    [
      "a bad one of ours beside a good one",
      { ...signed(), "extract-signature": "t=1,v1=x" },
      "header_malformed",
    ],
  ])("refuses %s", async (_, headers, code) => {
    await expect(judge(headers)).rejects.toMatchObject({ code });
  });

  test.each(standardVectors)("$name: $verdict", async (vector) => {
    const judged = judge(vector.headers, {
      body: Buffer.from(vector.body_base64, "base64"),
      secrets: vector.secrets,
      nowSeconds: vector.now,
      toleranceSeconds: vector.tolerance_seconds,
    });
    if (vector.verdict === "accept") return await judged;
    await expect(judged).rejects.toMatchObject({ kind: vector.verdict === "reject" ? "rejected" : "misuse" });
  });

  test("takes no key from a secret that is none of Standard Webhooks'", async () => {
    const short = "whsec_AAAA";
    expect(standardKey(short)).toBeNull();
    await expect(judge(signed(), { secrets: [short, "x", "whsec_"] })).rejects.toMatchObject({
      code: "no_signature_matches",
    });
    await judge(signed(), { secrets: [short, SECRET] });
  });
});

test.each([
  ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 24],
  ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 24],
  [SECRET, 32],
  [`whsec_${Buffer.alloc(64, 1).toString("base64")}`, 64],
  [`whsec_${Buffer.alloc(65, 1).toString("base64")}`, null],
  [`whsec_${Buffer.alloc(23, 1).toString("base64")}`, null],
  [`${SECRET} `, null],
  ["whsec_not-base64_but_url-safe_base64_of_a_length", null],
])("%s has a key of %s bytes", (secret, bytes) => {
  expect(standardKey(secret)?.length ?? null).toBe(bytes);
});
