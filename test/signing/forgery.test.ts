import { Buffer } from "node:buffer";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  importSigningKey,
  signatureHeader,
  verifySignature,
  WebhookVerificationError,
} from "../../src/signing/index.ts";
import { verifySignature as verifySignatureByWebCrypto } from "../../src/signing/web.ts";

const CASES = 100_000;
const NOW_SECONDS = 1_800_000_000;
const SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const signingKey = importSigningKey(SECRET);
const forgersKey = importSigningKey("whsec_dGhlLWZvcmdlcidzLW93bi1zZWNyZXQ");

/** What a forger holds: a genuine delivery, now and from long ago, and signatures under a key of their own. */
const GENUINE_BODY = Buffer.from(
  '{"id":"0199a1f0","event":"analysis.succeeded","data":{"id":"a","status":"succeeded","amount":100}}',
);
const GENUINE = signatureHeader({
  timestampSeconds: NOW_SECONDS,
  body: GENUINE_BODY,
  keys: [signingKey],
}).split(",") as [string, string];
const OLD = signatureHeader({
  timestampSeconds: NOW_SECONDS - 86_400,
  body: GENUINE_BODY,
  keys: [signingKey],
}).split(",") as [string, string];
const FORGED_BODY = Buffer.from(GENUINE_BODY.toString().replace("100", "999"));
const FORGED = signatureHeader({
  timestampSeconds: NOW_SECONDS,
  body: FORGED_BODY,
  keys: [forgersKey],
}).split(",") as [string, string];

const unit = fc.nat(0xffff).map((code) => String.fromCharCode(code));
const item = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...GENUINE, ...OLD, ...FORGED) },
  {
    weight: 2,
    arbitrary: fc.constantFrom("", "t=", "v1=", "v1", "t", "=", "v0=0", `v1=${"0".repeat(64)}`, "T=1"),
  },
  { weight: 1, arbitrary: fc.integer().map((seconds) => `t=${seconds}`) },
  { weight: 1, arbitrary: fc.string({ maxLength: 12, unit }) },
);
const assembled = fc
  .tuple(fc.array(item, { maxLength: 6 }), fc.constantFrom(",", ",", ",", ", ", ";", "\0", "\r\n"))
  .map(([items, separator]) => items.join(separator));
const edited = fc
  .tuple(
    fc.constantFrom(GENUINE.join(","), OLD.join(","), FORGED.join(",")),
    fc.nat(200),
    fc.nat(3),
    fc.string({ maxLength: 3, unit }),
  )
  .map(([header, at, cut, text]) => header.slice(0, at) + text + header.slice(at + cut));
const header = fc.oneof(
  { weight: 5, arbitrary: assembled },
  { weight: 4, arbitrary: edited },
  { weight: 1, arbitrary: fc.anything() as fc.Arbitrary<never> },
);
const body = fc.oneof(
  { weight: 4, arbitrary: fc.constant(GENUINE_BODY) },
  { weight: 2, arbitrary: fc.constant(FORGED_BODY) },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.nat(GENUINE_BODY.length - 1), fc.nat(255)).map(([at, byte]) => {
      const bytes = Buffer.from(GENUINE_BODY);
      bytes[at] = byte;
      return bytes;
    }),
  },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 64 }) },
  { weight: 1, arbitrary: fc.anything() as fc.Arbitrary<never> },
);

test(`${CASES} forgeries: nothing is accepted but the genuine bytes under their own time and signature`, () => {
  let accepted = 0;
  const codes = new Set<string>();
  fc.assert(
    fc.property(header, body, (header, body) => {
      try {
        verifySignature({ body, header, secrets: [SECRET], nowSeconds: NOW_SECONDS });
      } catch (error) {
        if (!(error instanceof WebhookVerificationError)) throw error;
        codes.add(error.code);
        return;
      }
      accepted += 1;
      const items = [header].flat().join().split(",");
      const times = items.filter((text) => text.startsWith("t="));
      if (Buffer.compare(body, GENUINE_BODY) !== 0) throw new Error("accepted a body that was not signed");
      if (times.length !== 1 || times[0] !== GENUINE[0]) throw new Error("accepted another time");
      if (!items.includes(GENUINE[1])) throw new Error("accepted without the signature");
    }),
    { numRuns: CASES },
  );
  // The search is worth something only if it reaches both sides of every check.
  expect(accepted).toBeGreaterThan(CASES / 1_000);
  expect([...codes].sort()).toEqual([
    "body_already_parsed",
    "header_malformed",
    "header_missing",
    "no_signature_matches",
    "timestamp_ahead",
    "timestamp_too_old",
  ]);
});

test("5000 forgeries: the web entry says of each what the Node entry says", async () => {
  const outcome = async (
    verify: (input: Parameters<typeof verifySignature>[0]) => void | Promise<void>,
    input: never,
  ) => {
    try {
      await verify(input);
      return "accepted";
    } catch (error) {
      return error instanceof WebhookVerificationError ? error.code : error;
    }
  };
  await fc.assert(
    fc.asyncProperty(header, body, async (header, body) => {
      const input = { body, header, secrets: [SECRET], nowSeconds: NOW_SECONDS } as never;
      expect(await outcome(verifySignatureByWebCrypto, input)).toEqual(await outcome(verifySignature, input));
    }),
    { numRuns: 5_000 },
  );
});
