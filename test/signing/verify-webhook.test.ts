import { Buffer } from "node:buffer";
import { describe, expect, expectTypeOf, test, vi } from "vitest";
import * as node from "../../src/signing/index.ts";
import * as web from "../../src/signing/web.ts";
import { signatureVectors } from "./vectors.ts";

const SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const OTHER_SECRET = "whsec_YW5vdGhlci1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const NOW_SECONDS = 1_800_000_000;
const SUCCEEDED = {
  id: "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11",
  event: "analysis.succeeded",
  created_at: "2027-01-15T08:00:00.000Z",
  data: { id: "an_1", status: "succeeded", pages: [{ text: "naïve" }] },
};
const FAILED = { ...SUCCEEDED, event: "analysis.failed", data: { id: "an_1", status: "failed" } };

function bytes(value: unknown): Buffer {
  return Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
}

function sign(body: Uint8Array, secret = SECRET): string {
  return node.signatureHeader({
    timestampSeconds: NOW_SECONDS,
    body,
    keys: [node.importSigningKey(secret)],
  });
}

function delivery(body: Uint8Array) {
  return { rawBody: body, header: sign(body), secret: SECRET, now: NOW_SECONDS } as const;
}

describe.each([
  ["Node", node],
  ["web", web],
])("the %s entry", (_, entry) => {
  /** Both entries behind one face: what the one throws, the other rejects with. */
  async function verify(input: node.VerifyWebhookInput): Promise<node.WebhookEvent> {
    return entry.verifyWebhook(input);
  }
  function rejectedWith(code: node.WebhookVerificationErrorCode, message = /./) {
    return expect.objectContaining({
      name: "WebhookVerificationError",
      code,
      message: expect.stringMatching(message),
    });
  }

  test.each(signatureVectors)("vector $name: $verdict", async (vector) => {
    const judged = (async () =>
      entry.verifySignature({
        body: Buffer.from(vector.body_base64, "base64"),
        header: vector.header,
        secrets: vector.secrets,
        nowSeconds: vector.now,
        toleranceSeconds: vector.tolerance_seconds,
      }))();
    if (vector.verdict === "accept") return expect(await judged).toBeUndefined();
    const kind = vector.verdict === "reject" ? "rejected" : "misuse";
    await expect(judged).rejects.toThrow(expect.objectContaining({ kind }));
  });

  test("gives the typed event", async () => {
    const event = await verify(delivery(bytes(SUCCEEDED)));
    expect(event).toEqual(SUCCEEDED);
    expectTypeOf(event.event).toEqualTypeOf<"analysis.succeeded" | "analysis.failed">();
    if (event.event === "analysis.succeeded") expectTypeOf(event.data.status).toEqualTypeOf<"succeeded">();
    else expectTypeOf(event).toEqualTypeOf<node.AnalysisFailed>();
    expect(await verify(delivery(bytes(FAILED)))).toEqual(FAILED);
  });

  test("takes an ArrayBuffer and a part of a larger buffer", async () => {
    const body = bytes(SUCCEEDED);
    const pool = Buffer.concat([Buffer.from("xx"), body, Buffer.from("yy")]);
    const part = pool.subarray(2, 2 + body.length);
    const whole = Uint8Array.from(body).buffer;
    for (const rawBody of [part, whole]) {
      expect(await verify({ ...delivery(body), rawBody })).toEqual(SUCCEEDED);
    }
  });

  test("takes the time as a Date, as seconds, or from the system's clock", async () => {
    const input = delivery(bytes(SUCCEEDED));
    expect(await verify({ ...input, now: new Date(NOW_SECONDS * 1000 + 299_000) })).toEqual(SUCCEEDED);
    await expect(verify({ ...input, now: new Date(NOW_SECONDS * 1000 + 300_000) })).rejects.toThrow(
      rejectedWith("timestamp_too_old", /300 s ago/),
    );
    await expect(verify({ ...input, now: new Date(Number.NaN) })).rejects.toThrow(
      rejectedWith("clock_invalid"),
    );
    await expect(verify({ ...input, now: NOW_SECONDS * 1000 })).rejects.toThrow(
      rejectedWith("clock_invalid", /milliseconds/),
    );
    await expect(verify({ ...input, now: undefined })).rejects.toThrow(rejectedWith("timestamp_ahead"));
  });

  test("takes one secret or several", async () => {
    const { secret: _secret, ...input } = delivery(bytes(SUCCEEDED));
    expect(await verify({ ...input, secrets: [OTHER_SECRET, SECRET] })).toEqual(SUCCEEDED);
    await expect(verify({ ...input, secret: OTHER_SECRET })).rejects.toThrow(
      rejectedWith("no_signature_matches"),
    );
    await expect(verify({ ...input, secret: undefined })).rejects.toThrow(
      rejectedWith("secret_missing", /configuration/),
    );
    await expect(verify({ ...input, secrets: [] })).rejects.toThrow(rejectedWith("secret_missing"));
    await expect(verify({ ...input, secret: "" })).rejects.toThrow(rejectedWith("secret_empty"));
    // @ts-expect-error a list of secrets is not one text
    await expect(verify({ ...input, secrets: SECRET })).rejects.toThrow(rejectedWith("secret_missing"));
    // @ts-expect-error either the one or the several
    await verify({ ...input, secret: SECRET, secrets: [SECRET] });
  });

  test("takes a delivery signed by both secrets of a rotation, whichever of them the receiver has", async () => {
    const { secret: _secret, ...input } = delivery(bytes(SUCCEEDED));
    const header = `${input.header},${sign(input.rawBody, OTHER_SECRET).split(",")[1]}`;
    for (const secrets of [[SECRET], [OTHER_SECRET], [SECRET, OTHER_SECRET], [OTHER_SECRET, SECRET]]) {
      expect(await verify({ ...input, header, secrets })).toEqual(SUCCEEDED);
    }
  });

  test("compares every digit of the signature", async () => {
    const input = delivery(bytes(SUCCEEDED));
    const start = input.header.length - 64;
    for (let at = start; at < input.header.length; at += 1) {
      const digit = input.header[at] === "0" ? "1" : "0";
      const header = input.header.slice(0, at) + digit + input.header.slice(at + 1);
      await expect(verify({ ...input, header })).rejects.toThrow(rejectedWith("no_signature_matches"));
    }
  });

  test("says what to do about a body that is no longer raw", async () => {
    const input = delivery(bytes(SUCCEEDED));
    // @ts-expect-error a parsed body
    await expect(verify({ ...input, rawBody: SUCCEEDED })).rejects.toThrow(
      rejectedWith("body_already_parsed", /express\.raw\(\).*request\.arrayBuffer\(\)/),
    );
    // @ts-expect-error a decoded body
    await expect(verify({ ...input, rawBody: JSON.stringify(SUCCEEDED) })).rejects.toThrow(
      rejectedWith("body_already_parsed", /new TextEncoder\(\)\.encode\(text\)/),
    );
    // @ts-expect-error no body
    await expect(verify({ ...input, rawBody: undefined })).rejects.toThrow(
      rejectedWith("body_already_parsed", /before anything else consumes it/),
    );
  });

  test("tells a missing header, and an old and an early timestamp", async () => {
    const input = delivery(bytes(SUCCEEDED));
    await expect(verify({ ...input, header: undefined })).rejects.toThrow(
      rejectedWith("header_missing", /proxy/),
    );
    await expect(verify({ ...input, header: "v1=1" })).rejects.toThrow(rejectedWith("header_malformed"));
    await expect(verify({ ...input, now: NOW_SECONDS - 300 })).rejects.toThrow(
      rejectedWith("timestamp_ahead", /300 s ahead/),
    );
  });

  test.each([
    ["nothing", "", /not UTF-8 JSON/],
    ["bytes that are not UTF-8", Buffer.from([0x22, 0xff, 0x22]), /not UTF-8 JSON/],
    ["a byte-order mark", `\ufeff${JSON.stringify(SUCCEEDED)}`, /not UTF-8 JSON/],
    ["a list", [SUCCEEDED], /not a JSON object/],
    ["null", "null", /not a JSON object/],
    ["no id", { ...SUCCEEDED, id: undefined }, /: id is not a/],
    ["an id that is a number", { ...SUCCEEDED, id: 1 }, /: id is not a/],
    ["no creation time", { ...SUCCEEDED, created_at: "" }, /: created_at is not a/],
    ["another event", { ...SUCCEEDED, event: "analysis.started" }, /: event is neither /],
    [
      "an event named as a member of every object",
      { ...SUCCEEDED, event: "constructor" },
      /: event is neither /,
    ],
    ["data that is a list", { ...SUCCEEDED, data: [] }, /: data is not an analysis/],
    ["data without an id", { ...SUCCEEDED, data: { status: "succeeded" } }, /: data is not an analysis/],
    ["a status that is not the event's", { ...SUCCEEDED, data: FAILED.data }, /data\.status/],
  ])("refuses a body, rightly signed, that holds %s", async (_, content, message) => {
    const body = Buffer.isBuffer(content) ? content : bytes(content);
    await expect(verify(delivery(body))).rejects.toThrow(rejectedWith("body_not_an_event", message));
  });

  describe("a challenge", () => {
    const challenge = bytes('{"type":"webhook.challenge","challenge":"a-1"}');
    const read = async (input: node.VerifyWebhookInput) => entry.readChallenge(input);

    test("is read, and an event is none", async () => {
      expect(await read(delivery(challenge))).toBe("a-1");
      expect(await read(delivery(bytes(SUCCEEDED)))).toBeNull();
      expect(await read(delivery(bytes("not JSON")))).toBeNull();
    });

    test("is no event, and the error says what to do", async () => {
      await expect(verify(delivery(challenge))).rejects.toThrow(
        rejectedWith("body_not_an_event", /challenge.*readChallenge first, and answer 200/),
      );
    });

    test("is verified as an event is", async () => {
      const input = delivery(challenge);
      const forged = { ...input, header: sign(challenge, OTHER_SECRET) };
      await expect(read(forged)).rejects.toThrow(rejectedWith("no_signature_matches"));
      const old = { ...input, now: NOW_SECONDS + 300 };
      await expect(read(old)).rejects.toThrow(rejectedWith("timestamp_too_old"));
      await expect(read({ ...input, header: undefined })).rejects.toThrow(rejectedWith("header_missing"));
      await expect(read({ ...input, secret: undefined })).rejects.toThrow(rejectedWith("secret_missing"));
      const parsed = { ...input, rawBody: { type: "webhook.challenge" } as unknown as Uint8Array };
      await expect(read(parsed)).rejects.toThrow(rejectedWith("body_already_parsed"));
    });
  });

  test("does not quote the body in its errors", async () => {
    const failure = await verify(delivery(bytes('{"secret-of-the-customer"'))).catch((error: Error) => error);
    expect(`${(failure as Error).stack} ${(failure as Error).cause}`).not.toContain("customer");
  });

  test("judges the signature before it parses", async () => {
    const input = delivery(bytes("not JSON"));
    await expect(verify({ ...input, header: sign(bytes("something else")) })).rejects.toThrow(
      rejectedWith("no_signature_matches"),
    );
  });
});

test("the web entry says what to do where there is no Web Crypto", async () => {
  vi.stubGlobal("crypto", undefined);
  try {
    await expect(web.verifyWebhook(delivery(bytes(SUCCEEDED)))).rejects.toMatchObject({
      code: "web_crypto_missing",
      kind: "misuse",
      message: expect.stringMatching(/no Web Crypto.* import sealpost-receiver .* HTTPS\./),
    });
  } finally {
    vi.unstubAllGlobals();
  }
});

test("the web entry parses what it verified, though the caller's buffer changes meanwhile", async () => {
  const body = Uint8Array.from(bytes(SUCCEEDED));
  const verified = web.verifyWebhook(delivery(body));
  body.set(bytes({ ...SUCCEEDED, id: SUCCEEDED.id.replaceAll("0", "9") }));
  expect(await verified).toEqual(SUCCEEDED);
});
