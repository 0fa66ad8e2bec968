import { describe, expect, test } from "vitest";
import { EVENTS, STATUS_OF_EVENT } from "../../src/base/model/events.ts";
import {
  challengeBody,
  confirmsChallenge,
  exampleAnalysis,
  webhookBody,
  webhookHeaders,
  webhookSignature,
} from "../../src/delivery/webhook.ts";
import { importSigningKey, readChallenge, verifyWebhook } from "../../src/signing/index.ts";

const SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const NOW_MS = Date.UTC(2026, 10, 20, 7, 0, 0, 123);
const ID = "0190b1a0-0000-7000-8000-000000000000";
const TEXT = '{ "id":"a-1", "status" : "failed", "n":9007199254740993, "n":1e400, "z":"\\u0000é" }';
const BODY = `{"id":"${ID}","event":"analysis.failed","created_at":"2026-11-20T07:00:00.123Z","data":${TEXT}}`;

describe("a webhook", () => {
  const body = webhookBody({ id: ID, event: "analysis.failed", createdAtMs: NOW_MS, analysisText: TEXT });
  const signature = webhookSignature(body, [importSigningKey(SECRET)], NOW_MS);
  const plain = { "content-type": "application/json", "user-agent": "Sealpost/1" };

  test("has these bytes", () => {
    expect(body.toString()).toBe(BODY);
  });

  test("is signed in whole seconds, over these bytes", () => {
    expect(signature).toMatch(/^t=1795158000,v1=[0-9a-f]{64}$/);
    verifyWebhook({ rawBody: body, header: signature, secret: SECRET, now: NOW_MS / 1_000 });
  });

  test("of an example is an event to receivers, and marked as an example", () => {
    for (const event of EVENTS) {
      for (const more of [undefined, '"pages":3', '"x":[1]']) {
        const analysisText = exampleAnalysis(event, "an-1", more);
        const rawBody = webhookBody({ id: ID, event, createdAtMs: NOW_MS, analysisText });
        const header = webhookSignature(rawBody, [importSigningKey(SECRET)], NOW_MS);
        const { data } = verifyWebhook({ rawBody, header, secret: SECRET, now: NOW_MS / 1_000 });
        const members = JSON.parse(`{${more ?? '"pages":3'}}`);
        expect(data).toEqual({ id: "an-1", status: STATUS_OF_EVENT[event], example: true, ...members });
      }
    }
  });

  test.each([
    ["of a delivery", { signature, traceparent: null }, { ...plain, "extract-signature": signature }],
    [
      "of a delivery with a trace",
      { signature, traceparent: "00-1-2-01" },
      { ...plain, "extract-signature": signature, traceparent: "00-1-2-01" },
    ],
    [
      "of a probe",
      { signature, traceparent: null, isProbe: true },
      { ...plain, "extract-signature": signature, "sealpost-probe": "1" },
    ],
    [
      "of a probe without a signature",
      { signature: null, traceparent: null, isProbe: true },
      { ...plain, "sealpost-probe": "1" },
    ],
  ])("has the headers %s, and no others", (_, given, headers) => {
    expect(webhookHeaders(given)).toEqual(headers);
  });
});

describe("a challenge", () => {
  const TEXT = "5f0c6a0e-7f0f-4c55-9d1f-2f1a3c1f7a10";
  const confirms = (responseExcerpt: string | null, statusCode: number | null = 200) =>
    confirmsChallenge(TEXT, { statusCode, responseExcerpt });

  test("is read by the receiver library, which takes it for no event", () => {
    const rawBody = challengeBody(TEXT);
    const header = webhookSignature(rawBody, [importSigningKey(SECRET)], NOW_MS);
    const input = { rawBody, header, secret: SECRET, now: NOW_MS / 1_000 };
    expect(readChallenge(input)).toBe(TEXT);
    expect(() => verifyWebhook(input)).toThrow(/readChallenge/);
  });

  test.each([TEXT, ` ${TEXT}\r\n`, `{"challenge":"${TEXT}"}`, `\n{ "ok": true, "challenge" : "${TEXT}" }\n`])(
    "is confirmed by a 2xx with %j",
    (body) => {
      expect([confirms(body), confirms(body, 201)]).toEqual([true, true]);
      expect([confirms(body, 199), confirms(body, 300), confirms(body, 404), confirms(body, null)]).toEqual(
        Array(4).fill(false),
      );
    },
  );

  test.each([
    null,
    "",
    "ok",
    challengeBody(TEXT).toString(),
    `{"challenge":"${TEXT}","type":"webhook.challenge"}`,
    `{"challenge":"${TEXT}","type":null}`,
    `{"[secret]":"webhook.challenge","challenge":"${TEXT}"}`,
    `{"challenge":"${TEXT.slice(1)}"}`,
    `{"data":{"challenge":"${TEXT}"}}`,
    `"${TEXT}"`,
    `[{"challenge":"${TEXT}"}]`,
    `["${TEXT}"]`,
    `<p>${TEXT}</p>`,
    `${TEXT}${TEXT}`,
    `${TEXT}… [cut off]`,
    TEXT.toUpperCase(),
    "null",
    "1",
  ])("is not by one with %j", (body) => {
    expect(confirms(body)).toBe(false);
  });
});
